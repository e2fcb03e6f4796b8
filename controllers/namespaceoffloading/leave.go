// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

// decideMapping determines whether the namespace is mapped on the provider. Withdrawing a namespace deletes the
// remote namespace with its content. A selector or label may have been edited by mistake, so the namespace is only
// withdrawn after a grace period in which the selector does not match. Until then nothing changes, and a condition
// shows the time of the withdrawal.
//
// The grace period begins at the time in this condition, so that it survives a restart.
func (c *Controller) decideMapping(nso *offloading.NamespaceOffloading, p *provider, selects *selector) selection {
	answer := p.isSelected(selects)
	if answer != no || !p.isRequested(nso.Namespace) || c.options.WithdrawalGrace <= 0 {
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

// nextLeave returns the delay until the namespace is withdrawn from the first of the providers, or 0 if no withdrawal
// is due.
func (c *Controller) nextLeave(providers []*provider) (wait time.Duration) {
	now := c.options.Clock.Now()
	for _, p := range providers {
		if left := p.leaves.Sub(now); !p.leaves.IsZero() && left > 0 && (wait == 0 || left < wait) {
			wait = left
		}
	}
	return wait
}

// shorterDelay returns the shorter of two delays until the next reconciliation. A delay of 0 means that no
// reconciliation is due.
func shorterDelay(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
