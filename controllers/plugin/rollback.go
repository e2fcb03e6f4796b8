// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// rollBack rejects the active revision after a virtual node has rolled it back in its probation, and makes the previous
// revision active again for all virtual nodes. The first revision of a plugin is not rejected. If it were, the report
// of a single virtual node would cause the objects of all virtual nodes to be reflected without the plugin.
func (c *Controller) rollBack(ctx context.Context, p *plugins.ReflectionPlugin, nodes []virtualNode) error {
	bad, previous := p.Status.ActiveRevision, p.Status.PreviousRevision
	// A rejected revision is active because a user has chosen it again. Without promotedAt, a proven revision was
	// restored, and has no probation.
	if bad == "" || previous == "" || p.Spec.Paused || p.Status.PromotedAt == nil || p.Status.IsRejected(bad) {
		return nil
	}
	revision, err := c.getRevision(ctx, bad)
	if err != nil {
		return err
	}
	entry := findRolledBack(revision, p.Status.PromotedAt, nodes)
	if entry == nil {
		return nil
	}
	cause := fmt.Sprintf("revision %s was rolled back by virtual node %s: %s", bad, entry.Name, cmp.Or(entry.Message, entry.Reason, "it does not say why"))
	err = c.activate(ctx, p, previous, false)
	var refused *refusal
	if errors.As(err, &refused) {
		return refusef(refused.reason, "%s. It stays active on the others: %s", cause, refused.message)
	}
	if err != nil {
		return err
	}
	p.Status.RejectRevision(bad)
	if p.Status.CandidateRevision == bad {
		p.Status.CandidateRevision = ""
	}
	remedy := describeOverride(p, bad)
	if isNamed(p, bad) {
		p.Status.OverruledRevision = bad
		remedy += ". What names it in spec does not count until it is removed, and set again"
	}
	c.failCondition(p, plugins.RehearsedCondition, rolledBackReason, fmt.Sprintf("%s. It does not become active again: %s", cause, remedy))
	return nil
}

// describeOverride describes the remedies for a rejected revision. Only the strategy Rehearse has approvals.
func describeOverride(p *plugins.ReflectionPlugin, revision string) string {
	if p.Spec.Rollout.Strategy == plugins.ImmediateRollout {
		return fmt.Sprintf("correct the plugin, or run refractctl plugin rollback %s --to=%s", p.Name, revision)
	}
	return fmt.Sprintf("correct the plugin, or run refractctl plugin approve %s", p.Name)
}

// findRolledBack returns the entry of an existing virtual node that has rolled back the revision after this promotion,
// or nil. The entry may be about an earlier promotion if its virtual kubelet has not removed it yet or has not run
// since. Such an entry is ignored.
func findRolledBack(revision *plugins.PluginRevision, promotedAt *metav1.Time, nodes []virtualNode) *plugins.VirtualNodePlugin {
	for _, n := range nodes {
		entry := findEntry(revision, n.name)
		if entry != nil && entry.State == plugins.RolledBackPlugin && (entry.PromotedAt == nil || entry.PromotedAt.Equal(promotedAt)) {
			return entry
		}
	}
	return nil
}

// setRejected sets the condition Rehearsed for a candidate that was rolled back. A condition about this revision, which
// contains the cause, is kept.
func (c *Controller) setRejected(p *plugins.ReflectionPlugin, revision string) {
	before := apimeta.FindStatusCondition(p.Status.Conditions, plugins.RehearsedCondition)
	if before != nil && before.Reason == rolledBackReason && strings.HasPrefix(before.Message, fmt.Sprintf("revision %s was rolled back", revision)) {
		return
	}
	setCondition(p, plugins.RehearsedCondition, metav1.ConditionFalse, rolledBackReason,
		fmt.Sprintf("revision %s was rolled back before, and does not become active again: %s", revision, describeOverride(p, revision)))
}

// forgetOverruled resets the overruled revision after its name was removed from the spec, so that a later choice of
// this revision counts again.
func forgetOverruled(p *plugins.ReflectionPlugin) {
	if overruled := p.Status.OverruledRevision; overruled != "" && !isNamed(p, overruled) {
		p.Status.OverruledRevision = ""
	}
}

// reportActivation writes an Event if another revision became active. The Event about a rollback is written with its condition.
func (c *Controller) reportActivation(before, after *plugins.ReflectionPlugin) {
	active := after.Status.ActiveRevision
	if active == "" || active == before.Status.ActiveRevision || after.Status.RejectedRevision != before.Status.RejectedRevision {
		return
	}
	message := "revision " + active + " is active"
	if previous := before.Status.ActiveRevision; previous != "" {
		message += ", instead of " + previous
	}
	c.report.Tell(after, nil, promotedReason, actions[plugins.ReadyCondition], message)
}
