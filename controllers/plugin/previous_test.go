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

// TestThePreviousRevisionIsProven checks that the previous revision is the last proven one, whatever becomes active
// during the probations after it.
func TestThePreviousRevisionIsProven(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		active, previous string
		unproven         bool
		next             string
		isProven         bool

		want         string // the previous revision
		wantUnproven bool
		hasProbation bool
	}{
		"the first":                   {next: "a", isProven: true, hasProbation: true},
		"after a proven one":          {active: "a", next: "b", isProven: true, want: "a", hasProbation: true},
		"during a probation":          {active: "b", previous: "a", next: "c", want: "a", hasProbation: true},
		"a return during a probation": {active: "b", previous: "a", next: "a"},
		"a return after a probation":  {active: "b", previous: "a", next: "a", isProven: true, want: "b", hasProbation: true},
		"during the first probation":  {active: "a", next: "b", want: "a", wantUnproven: true, hasProbation: true},
		"a third, while none is proven": {
			active: "b", previous: "a", unproven: true, next: "c", want: "a", wantUnproven: true, hasProbation: true,
		},
		"a return to one that is not proven": {active: "b", previous: "a", unproven: true, next: "a", hasProbation: true},
		"a third, after the second is proven": {
			active: "b", previous: "a", unproven: true, next: "c", isProven: true, want: "b", hasProbation: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plugins.ReflectionPlugin{}
			p.Status.ActiveRevision, p.Status.PreviousRevision, p.Status.PreviousUnproven = c.active, c.previous, c.unproven
			replaceActive(p, c.next, c.isProven, now)
			assert.Equal(t, c.next, p.Status.ActiveRevision)
			assert.Equal(t, c.want, p.Status.PreviousRevision)
			assert.Equal(t, c.wantUnproven, p.Status.PreviousUnproven)
			assert.Equal(t, c.hasProbation, p.Status.PromotedAt != nil)
		})
	}
}

// TestProbationsArePassed checks that a virtual node has passed a probation only if the probation began after the
// present promotion, and long enough ago.
func TestProbationsArePassed(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	ago := func(minutes int) *metav1.Time {
		return &metav1.Time{Time: now.Add(-time.Duration(minutes) * time.Minute)}
	}
	promotedAt, begunBefore := ago(60), ago(10).Time
	entry := func(state plugins.PluginState, promotedAt, since *metav1.Time) *plugins.VirtualNodePlugin {
		return &plugins.VirtualNodePlugin{State: state, PromotedAt: promotedAt, ActiveSince: since}
	}
	for name, c := range map[string]struct {
		entry *plugins.VirtualNodePlugin
		want  bool
	}{
		"passed":            {entry(plugins.ActivePlugin, promotedAt, ago(11)), true},
		"passed, and fails": {entry(plugins.FailedPlugin, promotedAt, ago(11)), true},
		"not over":          {entry(plugins.ActivePlugin, promotedAt, ago(9)), false},
		"not begun":         {entry(plugins.ActivePlugin, promotedAt, nil), false},
		"another promotion": {entry(plugins.ActivePlugin, ago(61), ago(61)), false},
		"rolled back":       {entry(plugins.RolledBackPlugin, promotedAt, ago(11)), false},
		"no entry":          {nil, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, hasPassed(c.entry, promotedAt, begunBefore)) })
	}
}

// TestPromotionsTakeTurns checks that only one candidate is promoted at a time.
func TestPromotionsTakeTurns(t *testing.T) {
	var turn turn
	assert.True(t, turn.take("a"))
	assert.True(t, turn.take("a"))
	assert.False(t, turn.take("b"))
	turn.pass("b")
	assert.False(t, turn.take("b"))
	turn.pass("a")
	assert.True(t, turn.take("b"))
}
