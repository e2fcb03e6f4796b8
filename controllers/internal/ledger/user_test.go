// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestEscapeUser(t *testing.T) {
	for user, want := range map[string]string{"milan": "milan", "system:serviceaccount:a:b": "system-serviceaccount-a-b", "jane@example.com": "jane-example.com", ":x:": "x", "": ""} {
		if got := EscapeUser(user); got != want {
			t.Errorf("%s is %s, want %s", user, got, want)
		}
	}
	long := strings.Repeat("u", 70)
	if a, b := EscapeUser(long+"1"), EscapeUser(long+"2"); a == b || len(validation.IsValidLabelValue(a)) > 0 {
		t.Errorf("two long names are %s and %s", a, b)
	}
}
