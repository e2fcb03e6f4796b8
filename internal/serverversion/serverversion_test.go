// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package serverversion

import (
	"fmt"
	"strings"
	"testing"
)

func TestVersionsAreChecked(t *testing.T) {
	for version, ok := range map[string]bool{
		"v1.36.3": true, "v1.36.3+k3s1": true, "v1.30.5-gke.1014001": true, "": false, "latest": false, "v1.36.3 <b>": false, "v1.36.3-" + strings.Repeat("a", 80): false, "v1.36.3\x1b[2K": false,
	} {
		if got, err := parseVersion(fmt.Appendf(nil, `{"gitVersion":%q}`, version)); (err == nil) != ok || ok && got != version {
			t.Errorf("%q is read as %q, %v", version, got, err)
		}
	}
	if _, err := parseVersion([]byte(`<html>`)); err == nil {
		t.Error("a page is a version")
	}
}

func TestIsOlder(t *testing.T) {
	for _, c := range []struct {
		one, other   string
		older, known bool
	}{
		{"v1.35.9", "v1.36.0", true, true}, {"v1.36.0", "v1.36.3", false, true}, {"v1.36.3_k3s1", "v1.37.0+k3s1", true, true}, {"v1.37.0", "v1.36.3", false, true}, {"v2.0.0", "v1.36.0", false, true}, {"", "v1.36.0", false, false},
	} {
		if older, known := IsOlder(c.one, c.other); older != c.older || known != c.known {
			t.Errorf("%s is older than %s: %t, %t", c.one, c.other, older, known)
		}
	}
}
