// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

// decide determines whether the namespace is mapped on the provider. To unoffload it is
// to delete its remote namespace with everything in it, so a selector that matches no more
// is given time to match again: it may be a mistake in an edit of selectors or
// labels. Meanwhile all stays as it is, and a condition says until when.
//
// The time counts from that condition, which a restart does not forget.
func (c *Controller) decide(nso *offloading.NamespaceOffloading, p *provider, selects *selector) answer {
	answer := p.selected(selects)
	if answer != no || !p.wishes(nso.Namespace) || c.options.WithdrawalGrace <= 0 {
		return answer
	}
	now := c.options.Clock.Now()
	since := now
	for _, condition := range nso.Status.RemoteNamespacesConditions[p.id] {
		if condition.Type == offloading.NamespaceOffloadingRequired && condition.Status == corev1.ConditionFalse {
			since = condition.LastTransitionTime.Time
		}
	}
	p.leaves = since.Add(c.options.WithdrawalGrace)
	if p.leaves.After(now) {
		return unsure
	}
	return no
}

// nextLeave returns after which time the first of the providers is left, 0 for never.
func (c *Controller) nextLeave(providers []*provider) (wait time.Duration) {
	now := c.options.Clock.Now()
	for _, p := range providers {
		if left := p.leaves.Sub(now); !p.leaves.IsZero() && left > 0 && (wait == 0 || left < wait) {
			wait = left
		}
	}
	return wait
}

// sooner returns the shorter of two times after which to reconcile again, of which 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
