// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"cmp"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/controllers/internal/memo"
)

// complements caches the complement of each namespace's NetworkPolicies until the policies change. A NamespaceMap is
// reconciled much more often than the policies change, and each time with all its namespaces. It is safe for concurrent
// use.
type complements struct {
	known   memo.Memo[knownComplement]
	compute func(selectors []metav1.LabelSelector, limit int) complement
}

// knownComplement is a complement, with the input that it was computed from.
type knownComplement struct {
	from  []policyVersion
	limit int
	complement
}

// policyVersion identifies the content of a NetworkPolicy.
type policyVersion struct {
	uid     types.UID
	version string
}

// complementOf returns the complement of the policies of a namespace.
func (c *complements) complementOf(namespace string, policies []*networkingv1.NetworkPolicy, limit int) complement {
	versions := make([]policyVersion, 0, len(policies))
	selectors := make([]metav1.LabelSelector, 0, len(policies))
	slices.SortFunc(policies, func(a, b *networkingv1.NetworkPolicy) int { return cmp.Compare(a.Name, b.Name) })
	for _, policy := range policies {
		versions = append(versions, policyVersion{policy.UID, policy.ResourceVersion})
		selectors = append(selectors, policy.Spec.PodSelector)
	}
	key := types.NamespacedName{Name: namespace}
	if known, ok := c.known.Get(key); ok && known.limit == limit && slices.Equal(known.from, versions) {
		return known.complement
	}
	result := c.compute(selectors, limit)
	c.known.Set(key, knownComplement{versions, limit, result})
	return result
}

// forgetNamespace removes the complement of a namespace.
func (c *complements) forgetNamespace(namespace string) {
	c.known.Drop(types.NamespacedName{Name: namespace})
}
