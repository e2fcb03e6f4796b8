// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fieldpath

import "testing"

func TestPathString(t *testing.T) {
	p := Path{{Key: "metadata", Index: -1}, {Key: "annotations", Index: -1}, {Key: "a/b]c", Index: -1}, {Index: 3}, {Key: "x", Index: -1}}
	if got := p.String(); got != "metadata.annotations[a/b]]c][3].x" {
		t.Error(got)
	}
	back, err := Parse(p.String())
	if err != nil || len(back) != len(p) || back[2].Key != p[2].Key {
		t.Errorf("%v, %v", back, err)
	}
}
