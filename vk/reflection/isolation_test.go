// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestFewerRulesIsolateTheSame checks that a reduced NetworkPolicy isolates pods in the same directions as the full
// policy, even if policyTypes is not set. It only allows traffic that the full policy allows, whatever the existing
// copy allows.
func TestFewerRulesIsolateTheSame(t *testing.T) {
	t.Parallel()
	parse := func(spec string) *unstructured.Unstructured {
		policy := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(`{metadata: {name: web}, spec: `+spec+`}`), &policy.Object))
		return policy
	}
	const a, b, c = `{from: [{podSelector: {matchLabels: {app: a}}}]}`, `{from: [{podSelector: {matchLabels: {app: b}}}]}`, `{to: [{ipBlock: {cidr: 192.0.2.0/24}}]}`
	for name, tc := range map[string]struct {
		policy, present string
		lesser          []string
	}{
		"nothing to leave out":       {`{podSelector: {}, policyTypes: [Ingress]}`, `{podSelector: {}, ingress: [` + a + `]}`, nil},
		"new":                        {`{podSelector: {}, policyTypes: [Ingress], ingress: [` + a + `]}`, "", []string{`{podSelector: {}, policyTypes: [Ingress]}`}},
		"without policyTypes":        {`{podSelector: {}, ingress: [` + a + `]}`, "", []string{`{podSelector: {}, policyTypes: [Ingress]}`}},
		"egress without policyTypes": {`{podSelector: {}, egress: [` + c + `]}`, "", []string{`{podSelector: {}, policyTypes: [Ingress, Egress]}`}},
		"a rule more": {`{podSelector: {}, policyTypes: [Ingress], ingress: [` + a + `, ` + b + `]}`, `{ingress: [` + a + `]}`,
			[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [` + a + `]}`, `{podSelector: {}, policyTypes: [Ingress]}`}},
		"another rule": {`{podSelector: {}, policyTypes: [Ingress], ingress: [` + b + `]}`, `{ingress: [` + a + `]}`, []string{`{podSelector: {}, policyTypes: [Ingress]}`}},
		"in one direction": {`{podSelector: {}, policyTypes: [Ingress, Egress], ingress: [` + a + `], egress: [` + c + `]}`, `{ingress: [` + b + `], egress: [` + c + `]}`,
			[]string{`{podSelector: {}, policyTypes: [Ingress, Egress], egress: [` + c + `]}`, `{podSelector: {}, policyTypes: [Ingress, Egress]}`}},
	} {
		var present *unstructured.Unstructured
		if tc.present != "" {
			present = parse(tc.present)
		}
		policy := parse(tc.policy)
		var got, want []any
		for _, one := range withFewerRules(policy, present) {
			got = append(got, one.Object["spec"])
		}
		for _, spec := range tc.lesser {
			want = append(want, parse(spec).Object["spec"])
		}
		if difference := cmp.Diff(want, got); difference != "" {
			t.Errorf("%s: %s", name, difference)
		}
		if difference := cmp.Diff(parse(tc.policy), policy); difference != "" {
			t.Errorf("%s: the policy has changed: %s", name, difference)
		}
	}
}
