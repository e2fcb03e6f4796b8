// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflectionpolicy

import (
	"errors"
	"testing"

	"github.com/refract-project/refract/api/wire"
)

const (
	skip  = wire.SkipReflectionAnnotation
	allow = wire.AllowReflectionAnnotation
)

func TestPolicy(t *testing.T) {
	for _, tc := range []struct {
		policy      Policy
		annotations map[string]any
		cross, bad  bool
	}{
		{DenyList, nil, true, false},
		{DenyList, map[string]any{skip: "true"}, false, false},
		{DenyList, map[string]any{skip: ""}, false, false},
		{DenyList, map[string]any{skip: "FALSE"}, true, false},
		{DenyList, map[string]any{skip: "maybe"}, false, true},
		{DenyList, map[string]any{allow: "false"}, true, false},
		{AllowList, nil, false, false},
		{AllowList, map[string]any{allow: "true"}, true, false},
		{AllowList, map[string]any{allow: ""}, true, false},
		{AllowList, map[string]any{allow: "False"}, false, false},
		{AllowList, map[string]any{allow: "1"}, false, true},
		{AllowList, map[string]any{skip: "true"}, false, false},
		{AllowList, map[string]any{skip: "true", allow: "true"}, false, true},
		{DenyList, map[string]any{skip: "", allow: "True"}, false, true},
		{DenyList, map[string]any{skip: "false", allow: "true"}, true, false},
		{AllowList, map[string]any{skip: "true", allow: "false"}, false, false},
		{AllowList, map[string]any{skip: "yes", allow: "true"}, false, true},
		{AllowList, map[string]any{skip: "yes"}, false, true},
		{DenyList, map[string]any{allow: "nope"}, false, true},
		{DenyList, map[string]any{skip: "true", allow: "nope"}, false, true},
		{Always, map[string]any{skip: "true"}, true, false},
		{Always, map[string]any{skip: "maybe"}, true, false},
		{"Sometimes", nil, false, true},
	} {
		got, err := tc.policy.Decide(tc.annotations)
		var malformed *Error
		if errors.As(err, &malformed) != tc.bad || err == nil && got.Cross != tc.cross {
			t.Errorf("%s with %v: cross %t, error %v; want %t, error %t", tc.policy, tc.annotations, got.Cross, err, tc.cross, tc.bad)
		}
	}
}

func TestPolicyOfSlices(t *testing.T) {
	for _, tc := range []struct {
		policy         Policy
		slice, service map[string]any // nil if there is no Service
		cross, bad     bool
	}{
		{DenyList, nil, nil, true, false},
		{AllowList, nil, nil, false, false},
		{AllowList, map[string]any{allow: "true"}, nil, true, false},
		{DenyList, nil, map[string]any{skip: "true"}, false, false},
		{AllowList, nil, map[string]any{allow: "true"}, true, false},
		{DenyList, map[string]any{allow: "true"}, map[string]any{skip: "true"}, true, false},
		{AllowList, map[string]any{skip: "true"}, map[string]any{allow: "true"}, false, false},
		// An annotation of the slice decides only if its value is true.
		{DenyList, map[string]any{skip: "false"}, map[string]any{skip: "true"}, false, false},
		{AllowList, map[string]any{skip: "false"}, nil, false, false},
		{AllowList, map[string]any{skip: "false"}, map[string]any{}, false, false},
		{DenyList, map[string]any{allow: "false"}, nil, true, false},
		{DenyList, map[string]any{skip: "true", allow: "false"}, nil, false, false},
		{AllowList, map[string]any{skip: "false", allow: "true"}, nil, true, false},
		{DenyList, map[string]any{skip: "true", allow: "true"}, nil, false, true},
		{DenyList, map[string]any{skip: "x"}, nil, false, true},
		{DenyList, nil, map[string]any{skip: "x"}, false, true},
	} {
		got, err := tc.policy.DecideSlice(tc.slice, func() (map[string]any, bool) { return tc.service, tc.service != nil })
		if (err != nil) != tc.bad || err == nil && got.Cross != tc.cross {
			t.Errorf("%s, slice %v, service %v: cross %t, error %v; want %t, error %t", tc.policy, tc.slice, tc.service, got.Cross, err, tc.cross, tc.bad)
		}
	}
}

// TestReasonNamesTheService checks that the Event about a slice names the object with the decisive annotation.
func TestReasonNamesTheService(t *testing.T) {
	service := func() (map[string]any, bool) { return map[string]any{skip: "true"}, true }
	got, err := DenyList.DecideSlice(nil, service)
	if want := "annotation " + skip + " is set on its Service"; err != nil || got.Reason != want {
		t.Errorf("reason %q (%v), want %q", got.Reason, err, want)
	}
}

// TestWhoHasDecided checks that a decision against an object is explicit if an annotation caused it, so that an Event
// reports it. No other decision may be explicit.
func TestWhoHasDecided(t *testing.T) {
	for _, tc := range []struct {
		policy      Policy
		annotations map[string]any
		explicit    bool
	}{
		{DenyList, nil, false},
		{DenyList, map[string]any{skip: "true"}, true},
		{DenyList, map[string]any{allow: "true"}, false},
		{AllowList, nil, false},
		{AllowList, map[string]any{allow: "false"}, true},
		{AllowList, map[string]any{skip: "true"}, false},
	} {
		if got, err := tc.policy.Decide(tc.annotations); err != nil || got.Explicit != tc.explicit {
			t.Errorf("%s with %v: explicit %t (%v), want %t", tc.policy, tc.annotations, got.Explicit, err, tc.explicit)
		}
	}
	for value, explicit := range map[string]bool{"true": true, "false": false} {
		for _, annotation := range []string{skip, allow} {
			got, err := AllowList.DecideSlice(map[string]any{annotation: value}, func() (map[string]any, bool) { return map[string]any{}, true })
			if err != nil || got.Explicit != explicit {
				t.Errorf("a slice with %s=%s: explicit %t (%v), want %t", annotation, value, got.Explicit, err, explicit)
			}
		}
	}
}
