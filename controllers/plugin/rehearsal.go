// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// unreachableGrace limits the wait for the report of a virtual node that is not reachable. With a longer grace,
// promotions are delayed for longer while a provider is away. With a shorter grace, a revision could be promoted
// without the report of a virtual kubelet that is only being restarted.
const unreachableGrace = 5 * time.Minute

// rehearsal contains the reports of the virtual nodes about a candidate.
type rehearsal struct {
	candidate string
	// total is the sum of the reports. reported contains the names of the virtual nodes that have sent them.
	total    plugins.PluginRehearsalResult
	reported []string
	// awaited are the virtual nodes whose reports are missing. skipped are unreachable virtual nodes after the grace.
	awaited, skipped []string
	// failed contains the entries of virtual nodes that cannot load the candidate.
	failed []plugins.VirtualNodePlugin
	// recheckAfter is the time until the next unreachable virtual node's grace period ends, or 0 if there is none.
	recheckAfter time.Duration
}

// gatherRehearsal collects the reports of the virtual nodes about a candidate. A report counts only if it compares the
// candidate with the active revision, and was made with the present revisions of the other plugins.
func gatherRehearsal(candidate *plugins.PluginRevision, active, others string, nodes []virtualNode, now time.Time) *rehearsal {
	r := &rehearsal{candidate: candidate.Name}
	for _, n := range nodes {
		entry := findEntry(candidate, n.name)
		switch {
		case entry != nil && entry.State == plugins.FailedPlugin:
			r.failed = append(r.failed, *entry)
		case entry != nil && isCurrentReport(entry.Rehearsal, active, others):
			r.addReport(n.name, entry.Rehearsal)
		default:
			r.awaitReport(n, candidate.CreationTimestamp.Time, now)
		}
	}
	return r
}

// isCurrentReport reports whether a report is about the present revisions. Virtual kubelets of earlier versions do not
// report the revisions of other plugins.
func isCurrentReport(report *plugins.PluginRehearsalResult, active, others string) bool {
	return report != nil && report.Against == active && (report.OtherRevisions == "" || report.OtherRevisions == others)
}

// findEntry returns the entry of a virtual node in the status of a revision, or nil.
func findEntry(revision *plugins.PluginRevision, node string) *plugins.VirtualNodePlugin {
	if revision == nil {
		return nil
	}
	for i := range revision.Status.VirtualNodes {
		if revision.Status.VirtualNodes[i].Name == node {
			return &revision.Status.VirtualNodes[i]
		}
	}
	return nil
}

func (r *rehearsal) addReport(node string, report *plugins.PluginRehearsalResult) {
	r.reported = append(r.reported, node)
	r.total.Objects += max(report.Objects, 0)
	r.total.Unchanged += max(report.Unchanged, 0)
	r.total.Changed += max(report.Changed, 0)
	r.total.Removed += max(report.Removed, 0)
	r.total.Errors += max(report.Errors, 0)
	r.total.NotDeterministic += max(report.NotDeterministic, 0)
}

// awaitReport records that the report of a virtual node is missing. If the virtual node is not reachable, its grace
// begins with its failure or with the creation of the candidate, whichever is later.
func (r *rehearsal) awaitReport(n virtualNode, created, now time.Time) {
	if n.isReachable {
		r.awaited = append(r.awaited, n.name)
		return
	}
	since := n.changedAt
	if created.After(since) {
		since = created
	}
	left := since.Add(unreachableGrace).Sub(now)
	if left <= 0 {
		r.skipped = append(r.skipped, n.name)
		return
	}
	r.awaited = append(r.awaited, n.name)
	if r.recheckAfter == 0 || left < r.recheckAfter {
		r.recheckAfter = left
	}
}

// outcome is the result of a rehearsal, for the condition Rehearsed. The status True promotes the candidate.
type outcome struct {
	status          metav1.ConditionStatus
	reason, message string
}

// judge compares the reports with the limits of the rollout. An exceeded limit is reported before the last report arrives.
func (r *rehearsal) judge(p *plugins.ReflectionPlugin) outcome {
	limits := plugins.PluginRehearsal{Approval: plugins.AutomaticApproval}
	if p.Spec.Rollout.Rehearsal != nil {
		limits = *p.Spec.Rollout.Rehearsal
	}
	approve := fmt.Sprintf(". See refractctl plugin status %s, then correct the plugin, or run refractctl plugin approve %s", p.Name, p.Name)
	excess := r.findExcess(&limits)
	switch {
	case r.total.NotDeterministic > 0:
		return outcome{metav1.ConditionFalse, notDeterministicReason, fmt.Sprintf("revision %s gives different results for the same object, for %d of %d objects: remove what the module remembers between two calls%s",
			r.candidate, r.total.NotDeterministic, r.total.Objects, approve)}
	case len(r.failed) > 0:
		return outcome{metav1.ConditionFalse, failedReason, fmt.Sprintf("revision %s does not load on virtual node %s: %s%s", r.candidate, r.failed[0].Name, r.failed[0].Message, approve)}
	case len(excess) > 0:
		return outcome{metav1.ConditionFalse, waitingForApprovalReason, fmt.Sprintf("revision %s %s%s", r.candidate, strings.Join(excess, ", "), approve)}
	case len(r.awaited) > 0:
		return outcome{metav1.ConditionUnknown, rehearsingReason, fmt.Sprintf("revision %s is being rehearsed, waiting for the reports of %s", r.candidate, joinNames(r.awaited))}
	case limits.Approval == plugins.ManualApproval:
		return outcome{metav1.ConditionFalse, waitingForApprovalReason, fmt.Sprintf("revision %s %s, within the limits; spec.rollout.rehearsal.approval is Manual%s", r.candidate, r.summarize(), approve)}
	case len(r.reported) == 0 && len(r.skipped) > 0:
		return outcome{metav1.ConditionFalse, unreachableReason, fmt.Sprintf("revision %s was not rehearsed: no virtual node that it is for is reachable (%s). The first one that is back rehearses it%s", r.candidate, joinNames(r.skipped), approve)}
	case len(r.reported) == 0:
		return outcome{metav1.ConditionTrue, noVirtualNodesReason, fmt.Sprintf("revision %s was not rehearsed: there is no virtual node that it is for", r.candidate)}
	}
	return outcome{metav1.ConditionTrue, rehearsedReason, fmt.Sprintf("revision %s %s, within the limits", r.candidate, r.summarize())}
}

// findExcess describes the exceeded limits. The percentage of changed objects is compared after the last report.
func (r *rehearsal) findExcess(limits *plugins.PluginRehearsal) (excess []string) {
	if percent := limits.MaxChangedPercent; percent != nil && len(r.awaited) == 0 && r.changedPercent() > float64(*percent) {
		excess = append(excess, fmt.Sprintf("changes %d of %d objects (%.3g %%, limit %d %%)", r.total.Changed, r.total.Objects, r.changedPercent(), *percent))
	}
	if r.total.Removed > int64(limits.MaxRemoved) {
		excess = append(excess, fmt.Sprintf("removes the copies of %d of %d objects (limit %d)", r.total.Removed, r.total.Objects, limits.MaxRemoved))
	}
	if r.total.Errors > int64(limits.MaxErrors) {
		excess = append(excess, fmt.Sprintf("fails on %d of %d objects (limit %d)", r.total.Errors, r.total.Objects, limits.MaxErrors))
	}
	return excess
}

// changedPercent returns the percentage of the objects whose copies would change.
func (r *rehearsal) changedPercent() float64 {
	return float64(r.total.Changed) * 100 / float64(max(r.total.Objects, 1))
}

// summarize describes the reports.
func (r *rehearsal) summarize() string {
	if len(r.reported) == 0 {
		return "was not rehearsed on any virtual node"
	}
	text := fmt.Sprintf("changes %d, removes %d and fails on %d of %d objects on %d virtual nodes", r.total.Changed, r.total.Removed, r.total.Errors, r.total.Objects, len(r.reported))
	if len(r.skipped) > 0 {
		text += fmt.Sprintf(" (%s not reachable)", joinNames(r.skipped))
	}
	return text
}
