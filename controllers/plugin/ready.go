// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// setReady sets the condition Ready, and the number of virtual nodes that run the active revision. If refused is set,
// setReady reports it as the reason why another revision was not made active.
func (c *Controller) setReady(ctx context.Context, p *plugins.ReflectionPlugin, nodes []virtualNode, refused *refusal) error {
	active := p.Status.ActiveRevision
	revision, err := c.getRevision(ctx, active)
	if err != nil {
		return err
	}
	if revision != nil {
		nodes = selectNodes(nodes, revision)
	}
	state := gatherStates(revision, nodes)
	p.Status.Nodes = ""
	if active != "" {
		p.Status.Nodes = fmt.Sprintf("%d/%d", state.active, len(nodes))
	}
	switch {
	case refused != nil && active != "":
		c.failCondition(p, plugins.ReadyCondition, refused.reason, fmt.Sprintf("revision %s stays active; %s", active, refused.message))
	case refused != nil:
		c.failCondition(p, plugins.ReadyCondition, refused.reason, refused.message)
	case active == "":
		setInactive(p)
	default:
		setActive(p, state, len(nodes))
	}
	return nil
}

// setActive sets the condition Ready of a plugin with an active revision from its states on the virtual nodes.
func setActive(p *plugins.ReflectionPlugin, state *nodeStates, nodes int) {
	active := p.Status.ActiveRevision
	status, reason, message := state.summarize(nodes)
	message = fmt.Sprintf("revision %s %s", active, message)
	switch candidate := p.Status.CandidateRevision; {
	case p.Spec.Paused:
		if status == metav1.ConditionTrue {
			reason = pausedReason
		}
		message += "; spec.paused is set: nothing is fetched, and no other revision becomes active"
	case p.Spec.Revision != "" && p.Spec.Revision != active && p.Status.OverruledRevision == p.Spec.Revision:
		message += fmt.Sprintf("; spec.revision names revision %s, which was rolled back", p.Spec.Revision)
	case p.Spec.Revision == "" && candidate != "":
		message += fmt.Sprintf("; revision %s is the candidate, see the condition Rehearsed", candidate)
	}
	setCondition(p, plugins.ReadyCondition, status, reason, message)
}

// setInactive sets the condition Ready of a plugin without an active revision. The reason is the first step that the
// plugin has not passed.
func setInactive(p *plugins.ReflectionPlugin) {
	reason, message := noRevisionReason, "no revision is accepted"
	steps := []string{plugins.FetchedCondition, plugins.VerifiedCondition, plugins.AcceptedCondition}
	if isTrue(p, plugins.AcceptedCondition) {
		steps = []string{plugins.RehearsedCondition}
	}
	for _, kind := range steps {
		if step := apimeta.FindStatusCondition(p.Status.Conditions, kind); step != nil && (step.Status == metav1.ConditionFalse || kind == plugins.RehearsedCondition) {
			reason, message = step.Reason, fmt.Sprintf("no revision is active, see the condition %s", kind)
			break
		}
	}
	if p.Spec.Paused {
		reason, message = pausedReason, "spec.paused is set: nothing is fetched, and no revision becomes active"
	}
	setCondition(p, plugins.ReadyCondition, metav1.ConditionFalse, reason, message)
}

// nodeStates contains the states of a revision on the virtual nodes.
type nodeStates struct {
	// active is the number of virtual nodes that run the revision.
	active int
	// failed and rolledBack are the first entries with these states of reachable virtual nodes.
	failed, rolledBack *plugins.VirtualNodePlugin
	// loading, silent and unreachable contain the names of the other virtual nodes. A silent one has no entry.
	loading, silent, unreachable []string
}

// gatherStates sorts the virtual nodes by the state of the revision.
func gatherStates(revision *plugins.PluginRevision, nodes []virtualNode) *nodeStates {
	s := &nodeStates{}
	for _, n := range nodes {
		entry := findEntry(revision, n.name)
		switch {
		case entry != nil && entry.State == plugins.ActivePlugin:
			s.active++
		case !n.isReachable:
			s.unreachable = append(s.unreachable, n.name)
		case entry == nil:
			s.silent = append(s.silent, n.name)
		case entry.State == plugins.FailedPlugin:
			s.failed = cmp.Or(s.failed, entry)
		case entry.State == plugins.RolledBackPlugin:
			s.rolledBack = cmp.Or(s.rolledBack, entry)
		default:
			s.loading = append(s.loading, n.name)
		}
	}
	return s
}

// summarize returns the condition Ready for a number of virtual nodes. The message continues a sentence that begins with the name of the revision.
func (s *nodeStates) summarize(nodes int) (status metav1.ConditionStatus, reason, message string) {
	runs := fmt.Sprintf("is active on %d of %d virtual nodes", s.active, nodes)
	switch {
	case s.failed != nil:
		return metav1.ConditionFalse, failedReason, fmt.Sprintf("%s; it failed on %s: %s", runs, s.failed.Name, cmp.Or(s.failed.Message, s.failed.Reason))
	case s.rolledBack != nil:
		return metav1.ConditionFalse, rolledBackReason, fmt.Sprintf("%s; it was rolled back by %s: %s", runs, s.rolledBack.Name, cmp.Or(s.rolledBack.Message, s.rolledBack.Reason))
	case len(s.loading) > 0:
		return metav1.ConditionFalse, loadingReason, fmt.Sprintf("%s; it is being loaded by %s", runs, joinNames(s.loading))
	case len(s.silent) > 0:
		return metav1.ConditionUnknown, notReportedReason, fmt.Sprintf("%s; %s have not reported about it: see the logs of their virtual kubelets, which may be of an older version", runs, joinNames(s.silent))
	case nodes == 0:
		return metav1.ConditionTrue, noVirtualNodesReason, "is active; there is no virtual node that it is for"
	case len(s.unreachable) > 0:
		return metav1.ConditionTrue, activeReason, fmt.Sprintf("%s; %s are not reachable", runs, joinNames(s.unreachable))
	}
	return metav1.ConditionTrue, activeReason, runs
}
