// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rehearsal

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

type queues struct {
	waiting   int
	evaluated uint64
}

func (q *queues) Queued() (int, uint64) { return q.waiting, q.evaluated }

// TestPace checks that a rehearsal rests for nine times as long as it has worked while objects are being reflected, and
// not otherwise.
func TestPace(t *testing.T) {
	t.Parallel()
	const worked = 2 * slicePeriod
	for _, c := range []struct {
		name   string
		worked time.Duration
		queues queues
		rests  bool
	}{
		{"within a slice", slicePeriod - 1, queues{waiting: 1}, false},
		{"after a slice, without other work", worked, queues{}, false},
		{"after a slice, with objects in the queues", worked, queues{waiting: 1}, true},
		{"after a slice in which objects were reflected", worked, queues{evaluated: 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			clock, q := clocktesting.NewFakeClock(time.Unix(1e9, 0)), &queues{}
			p := pace{queues: q, clock: clock}
			require.NoError(t, p.wait(t.Context()), "at the start")
			clock.Step(c.worked)
			*q = c.queues
			done := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			go func() { done <- p.wait(ctx) }()
			if c.rests {
				require.Eventually(t, clock.HasWaiters, 10*time.Second, time.Millisecond)
				clock.Step(9*c.worked - 1)
				assert.True(t, clock.HasWaiters(), "the rest is shorter")
				clock.Step(1)
			}
			require.NoError(t, <-done)
		})
	}
}

// TestPaceRestsUntilItIsQuiet checks that a rehearsal rests after each slice until no object has been reflected for a
// while, so that changes that follow each other find it at rest.
func TestPaceRestsUntilItIsQuiet(t *testing.T) {
	t.Parallel()
	clock, q := clocktesting.NewFakeClock(time.Unix(1e9, 0)), &queues{}
	p := pace{queues: q, clock: clock}
	require.NoError(t, p.wait(t.Context()))
	q.evaluated = 1
	for begin := clock.Now(); clock.Since(begin) < quietPeriod; {
		clock.Step(slicePeriod)
		done := make(chan error, 1)
		go func() { done <- p.wait(t.Context()) }()
		require.Eventually(t, clock.HasWaiters, 10*time.Second, 10*time.Microsecond)
		clock.Step(restPerSlice * slicePeriod)
		require.NoError(t, <-done)
	}
	clock.Step(quietPeriod)
	require.NoError(t, p.wait(t.Context())) // it does not rest: the clock stands still
}

// TestPaceEndsWithItsContext checks that a rest does not outlast its rehearsal.
func TestPaceEndsWithItsContext(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	p := pace{queues: &queues{waiting: 1}, clock: clock}
	require.NoError(t, p.wait(t.Context()))
	clock.Step(slicePeriod)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.wait(ctx), context.Canceled)
}
