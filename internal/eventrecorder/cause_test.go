// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package eventrecorder

import "testing"

func TestCauseOf(t *testing.T) {
	for name, c := range map[string]struct {
		a, b string
		same bool
	}{
		"a UUID":               {`request 3f2b8c1e-1111-4222-8333-abcdefabcdef failed`, `request 00000000-1111-4222-8333-abcdefabcdef failed`, true},
		"an identifier":        {`trace 4bf92f3577b34da6: denied`, `trace 00f067aa0ba902b7: denied`, true},
		"a time":               {`denied at 2026-01-02T03:04:05Z`, `denied at 2026-01-02T03:05:05.123+01:00`, true},
		"a duration":           {`no answer within 1.234s`, `no answer within 2.001s`, true},
		"a generated name":     {`injector-7d9f8-x2v5k refuses`, `injector-7d9f8-b9z4q refuses`, true},
		"a client port":        {`read tcp 10.0.0.1:51234->10.0.0.2:443`, `read tcp 10.0.0.1:51235->10.0.0.2:443`, true},
		"a map in any order":   {`labels map[a:1 b:2] are denied`, `labels map[b:2 a:1] are denied`, true},
		"causes in any order":  {`[spec.a: Required value, spec.b: Required value]`, `[spec.b: Required value, spec.a: Required value]`, true},
		"another field":        {`spec.a: Required value`, `spec.b: Required value`, false},
		"another amount":       {`must be less than or equal to cpu limit of 20m`, `must be less than or equal to cpu limit of 30m`, false},
		"another time-out":     {`no response within 30s`, `no response within 60s`, false},
		"another short number": {`exit code 137`, `exit code 139`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if same := causeOf(c.a) == causeOf(c.b); same != c.same {
				t.Errorf("%q and %q: same = %t", causeOf(c.a), causeOf(c.b), same)
			}
		})
	}
}
