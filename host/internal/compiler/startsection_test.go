// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package compiler

import (
	"bytes"
	"testing"
)

func TestStartSectionBecomesExport(t *testing.T) {
	if got := exportStart([]byte("\x00asm\x01\x00\x00\x00\x08\xff")); len(got) != 10 {
		t.Error("a malformed binary was changed")
	}
	only := []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x08\x01\x00\x0a\x04\x01\x02\x00\x0b")
	if got := exportStart(only); !bytes.Contains(got, []byte(StartExport)) || len(got) != len(only)+len(StartExport)+3 {
		t.Errorf("no export section: %q", got)
	}
}
