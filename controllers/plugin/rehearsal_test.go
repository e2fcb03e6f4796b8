// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// TestUnreachableVirtualNodesAreWaitedForInVain checks that the report of a virtual node that is not reachable is
// awaited for five minutes, counted from its failure or from the creation of the candidate, whichever is later.
func TestUnreachableVirtualNodesAreWaitedForInVain(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	for name, c := range map[string]struct {
		candidate time.Time
		node      virtualNode
		status    metav1.ConditionStatus
		reason    string
		recheck   time.Duration
	}{
		"reachable":                   {ago(60), virtualNode{isReachable: true, changedAt: ago(60)}, metav1.ConditionUnknown, rehearsingReason, 0},
		"away for a while":            {ago(60), virtualNode{changedAt: ago(2)}, metav1.ConditionUnknown, rehearsingReason, 3 * time.Minute},
		"away, and a young candidate": {ago(1), virtualNode{changedAt: ago(60)}, metav1.ConditionUnknown, rehearsingReason, 4 * time.Minute},
		"away for long":               {ago(6), virtualNode{changedAt: ago(60)}, metav1.ConditionFalse, unreachableReason, 0},
		"since five minutes":          {ago(60), virtualNode{changedAt: ago(5)}, metav1.ConditionFalse, unreachableReason, 0},
	} {
		t.Run(name, func(t *testing.T) {
			candidate := &plugins.PluginRevision{ObjectMeta: metav1.ObjectMeta{Name: "p-1", CreationTimestamp: metav1.NewTime(c.candidate)}}
			c.node.name = "milan"
			r := gatherRehearsal(candidate, "p-0", "", []virtualNode{c.node}, now)
			result := r.judge(&plugins.ReflectionPlugin{})
			assert.Equal(t, c.status, result.status, result.message)
			assert.Equal(t, c.reason, result.reason)
			assert.Equal(t, c.recheck, r.recheckAfter)
			assert.Contains(t, result.message, "milan")
		})
	}
}

// TestOneReportIsNeeded checks that virtual nodes that are not reachable are ignored if another virtual node has
// reported, and that no revision is promoted without any report.
func TestOneReportIsNeeded(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	candidate := &plugins.PluginRevision{ObjectMeta: metav1.ObjectMeta{Name: "p-1", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	nodes := []virtualNode{{name: "milan", changedAt: now.Add(-time.Hour)}, {name: "turin", isReachable: true}}
	result := gatherRehearsal(candidate, "", "", nodes[:1], now).judge(&plugins.ReflectionPlugin{})
	assert.Equal(t, metav1.ConditionFalse, result.status)
	assert.Contains(t, result.message, "refractctl plugin approve")
	candidate.Status.VirtualNodes = []plugins.VirtualNodePlugin{{Name: "turin", State: plugins.StandbyPlugin, Rehearsal: &plugins.PluginRehearsalResult{Objects: 1}}}
	result = gatherRehearsal(candidate, "", "", nodes, now).judge(&plugins.ReflectionPlugin{})
	assert.Equal(t, metav1.ConditionTrue, result.status)
	assert.Contains(t, result.message, "milan not reachable")
}
