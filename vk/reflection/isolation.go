// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// withFewerRules returns reduced copies of a NetworkPolicy, for a provider that rejects the full policy. Without a
// reduced copy, the provider would have no policy or an outdated one, and the pods would accept traffic that the policy
// does not allow. If the existing copy has some of the rules, the first reduced copy has only these. The last one has
// no rules. All reduced copies isolate the same pods as the policy, and none allows traffic that the policy does not
// allow.
func withFewerRules(policy, remote *unstructured.Unstructured) (lesser []*unstructured.Unstructured) {
	spec, present := raw.Map(policy.Object["spec"]), map[string]any{}
	if remote != nil {
		present = raw.Map(remote.Object["spec"])
	}
	common := map[string][]any{}
	all, both := 0, 0
	for _, direction := range directions {
		rules, _ := spec[direction].([]any)
		known, _ := present[direction].([]any)
		for _, rule := range rules {
			if slices.ContainsFunc(known, func(other any) bool { return document.Of(rule).Equal(document.Of(other)) }) {
				common[direction] = append(common[direction], rule)
			}
		}
		all, both = all+len(rules), both+len(common[direction])
	}
	if both > 0 && both < all {
		lesser = append(lesser, withRules(policy, common))
	}
	if all > 0 {
		lesser = append(lesser, withRules(policy, nil))
	}
	return lesser
}

// directions are the fields of a NetworkPolicy's spec that contain rules.
var directions = []string{"ingress", "egress"}

// withRules returns a policy with other rules that isolates pods in the same directions.
func withRules(policy *unstructured.Unstructured, rules map[string][]any) *unstructured.Unstructured {
	spec := maps.Clone(raw.Map(policy.Object["spec"]))
	// The types are set explicitly, because an API server would derive them from the reduced rules.
	if raw.IsEmpty(spec["policyTypes"]) {
		types := []any{string(networkingv1.PolicyTypeIngress)}
		if !raw.IsEmpty(spec["egress"]) {
			types = append(types, string(networkingv1.PolicyTypeEgress))
		}
		spec["policyTypes"] = types
	}
	for _, direction := range directions {
		delete(spec, direction)
		if rules := rules[direction]; len(rules) > 0 {
			spec[direction] = rules
		}
	}
	object := maps.Clone(policy.Object)
	object["spec"] = spec
	return &unstructured.Unstructured{Object: object}
}
