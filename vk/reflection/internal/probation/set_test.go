// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package probation

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/refract-project/refract/host"
)

// TestHeldRemovalsHaveOneMessage checks that the message is the same for every attempt to delete a copy, so that only
// one Event is written.
func TestHeldRemovalsHaveOneMessage(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))
	set := NewSet(clock)
	set.Replace([]*Probation{New(Options{Plugin: "p", Revision: "p-2", Until: clock.Now().Add(10 * time.Minute)})})
	try := func() error {
		return set.MayRemove(Object{Kind: "Pod", Name: "web"}, func(Runner) (*host.Outcome, error) { return &host.Outcome{}, nil })
	}
	first := try()
	require.ErrorContains(t, first, "until 2026-01-02T03:10:00Z")
	clock.Step(7 * time.Second)
	assert.EqualError(t, try(), first.Error())
	clock.Step(10 * time.Minute)
	assert.NoError(t, try())
}

// TestHeldRemovalsAreCounted checks the metric on which the alert about held removals is based.
func TestHeldRemovalsAreCounted(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))
	set := NewSet(clock)
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(set))
	held := func() (values []float64) {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, family := range families {
			require.Equal(t, "refract_plugin_removals_held", family.GetName())
			for _, metric := range family.GetMetric() {
				require.Equal(t, []string{"p", "p-2"}, []string{metric.GetLabel()[0].GetValue(), metric.GetLabel()[1].GetValue()})
				values = append(values, metric.GetGauge().GetValue())
			}
		}
		return values
	}
	assert.Empty(t, held(), "no revision is on probation")
	set.Replace([]*Probation{New(Options{Plugin: "p", Revision: "p-2", MaxRemoved: 1, Until: clock.Now().Add(10 * time.Minute)})})
	for _, name := range []string{"a", "b", "c", "b"} {
		_ = set.MayRemove(Object{Kind: "Pod", Name: name}, func(Runner) (*host.Outcome, error) { return &host.Outcome{}, nil })
	}
	assert.Equal(t, []float64{2}, held(), "one of three removals is allowed")
	set.Release(Object{Kind: "Pod", Name: "b"})
	assert.Equal(t, []float64{1}, held())
	clock.Step(10 * time.Minute)
	assert.Equal(t, []float64{0}, held(), "the probation has ended")
}

// TestLimitsOfFailures checks after how many evaluations and failures a revision is rolled back.
func TestLimitsOfFailures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                        string
		evaluated, failed, percent  int
		previousFails, isRolledBack bool
	}{
		{name: "all of 19", evaluated: 19, failed: 19},
		{name: "all of 20", evaluated: 20, failed: 20, isRolledBack: true},
		{name: "one of 100 at 1 %", evaluated: 100, failed: 1, percent: 1},
		{name: "two of 100 at 1 %", evaluated: 100, failed: 2, percent: 1, isRolledBack: true},
		{name: "one of 100 at 0 %", evaluated: 100, failed: 1, isRolledBack: true},
		{name: "none of 100 at 0 %", evaluated: 100},
		{name: "all of 20, as with the previous revision", evaluated: 20, failed: 20, previousFails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			messages := 0
			p := New(Options{Plugin: "p", Revision: "p-2", MaxFailedPercent: int32(c.percent), RollBack: func(string) { messages++ }})
			for i := range c.evaluated {
				// The failures come last, so that their percentage does not exceed the limit earlier.
				p.count(Object{Kind: "Pod", Name: fmt.Sprint(i)}, i >= c.evaluated-c.failed, func() bool { return !c.previousFails })
			}
			assert.Equal(t, c.isRolledBack, messages == 1, "%d times", messages)
		})
	}
}

// TestRetriesAreCountedOnce checks that retries for a single failing object do not roll back a revision.
func TestRetriesAreCountedOnce(t *testing.T) {
	t.Parallel()
	p := New(Options{Plugin: "p", Revision: "p-2", RollBack: func(message string) { t.Error(message) }})
	for range 100 {
		p.count(Object{Kind: "Pod", Name: "web", ResourceVersion: "1"}, true, func() bool { return true })
	}
}
