// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clock sends pings to a State at the interval that the State requests.
type clock struct {
	State
	now        time.Time
	reconnects []time.Duration
	begun      time.Time
}

func newClock() *clock {
	begun := time.Unix(1000, 0)
	return &clock{now: begun, begun: begun}
}

// run sends pings for the duration d. If the peer answers, it does so after 10 ms.
func (c *clock) run(d time.Duration, answers, refract bool) {
	for end := c.now.Add(d); c.now.Before(end); c.now = c.now.Add(c.Interval()) {
		if c.Check(c.now) {
			c.reconnects = append(c.reconnects, c.now.Sub(c.begun))
		}
		stamp := c.now.String()
		c.Sent(stamp, c.now)
		if answers {
			c.Answered(stamp, refract, c.now.Add(10*time.Millisecond))
		}
	}
}

func TestPeersOfBothKinds(t *testing.T) {
	for _, c := range []struct {
		refract               bool
		interval, lost, until time.Duration
	}{
		{true, 300 * time.Millisecond, 1200 * time.Millisecond, 600 * time.Millisecond},
		{false, 2 * time.Second, 12 * time.Second, 4 * time.Second},
	} {
		t.Run(fmt.Sprint("refract=", c.refract), func(t *testing.T) {
			k := newClock()
			require.Equal(t, interval, k.Interval())
			k.run(time.Minute, true, c.refract)
			require.True(t, k.Connected())
			require.Equal(t, 10*time.Millisecond, k.Latency())
			require.Equal(t, c.refract, k.Refract())
			require.Equal(t, c.interval, k.Interval())
			require.Empty(t, k.reconnects)

			k.run(c.lost-2*c.interval, false, false)
			require.True(t, k.Connected())
			k.run(2*c.interval, false, false)
			require.False(t, k.Connected())
			require.True(t, k.Lost())
			require.Zero(t, k.Latency())
			require.NotEmpty(t, k.reconnects)

			k.run(c.until, true, c.refract) // two answers are not sufficient
			require.False(t, k.Connected())
			k.run(c.interval, true, c.refract)
			require.True(t, k.Connected())
			require.False(t, k.Lost())
		})
	}
}

// TestReconnectPauses checks that a peer that never answers, or has stopped answering, is reconnected with increasing
// delays.
func TestReconnectPauses(t *testing.T) {
	k := newClock()
	k.run(time.Minute, false, false)
	require.False(t, k.Lost(), "it was never connected")
	require.Len(t, k.reconnects, 8)
	require.Equal(t, 900*time.Millisecond, k.reconnects[0])
	require.Less(t, k.reconnects[1], 1600*time.Millisecond)
	require.Less(t, k.reconnects[7]-k.reconnects[6], maxReconnectDelay+interval)
	require.GreaterOrEqual(t, k.reconnects[7]-k.reconnects[6], maxReconnectDelay)
	k.run(10*time.Second, true, true)
	begun := k.now
	k.reconnects = nil
	k.run(3*time.Second, false, false)
	require.Less(t, k.begun.Add(k.reconnects[0]).Sub(begun), 1300*time.Millisecond, "the pauses begin anew after an answer")
}

// TestForgedAnswers passes answers to pings that this gateway has not sent.
func TestForgedAnswers(t *testing.T) {
	k := newClock()
	k.Sent("first", k.now)
	k.Sent("second", k.now.Add(interval))
	require.False(t, k.Answered("other", true, k.now))
	require.False(t, k.Connected())
	require.True(t, k.Answered("second", true, k.now.Add(interval)))
	require.False(t, k.Answered("second", true, k.now.Add(interval)), "a repeated answer")
	require.False(t, k.Answered("first", true, k.now.Add(interval)), "an answer to an earlier ping")
	k.run(time.Hour, false, false)
	require.LessOrEqual(t, len(k.pending), 7, "pings without an answer are forgotten")
}

// TestMovedPeers checks that if another pod of the peer's gateway becomes active, reconnecting is attempted immediately
// and repeatedly, and the peer does not count as lost. Only the peer must be able to cause this.
func TestMovedPeers(t *testing.T) {
	k := newClock()
	require.False(t, k.Moved("", k.now))
	k.run(time.Minute, true, true)
	stamp := k.now.Add(-interval).String() // of the last ping
	require.False(t, k.Moved("invented", k.now))
	require.False(t, k.Moved(k.now.Add(-2*interval).String(), k.now), "the last ping but one")
	require.True(t, k.Moved(stamp, k.now))
	require.False(t, k.Moved(stamp, k.now), "a repeated message")
	begun := k.now.Sub(k.begun)
	k.run(600*time.Millisecond, false, true)
	require.Equal(t, []time.Duration{begun, begun + 200*time.Millisecond, begun + 400*time.Millisecond}, k.reconnects)
	require.True(t, k.Connected())
	k.run(10*time.Second, true, true)
	require.Len(t, k.reconnects, 4, "it answers the ping after the fourth attempt")
	require.True(t, k.Connected())
	require.Equal(t, interval, k.Interval())

	// A pod that never answers must count as lost, too.
	stamp = k.now.Add(-interval).String()
	require.False(t, k.Moved(stamp, k.now.Add(time.Minute)), "an answer that is a minute old")
	require.True(t, k.Moved(stamp, k.now))
	k.run(time.Minute, false, true)
	require.True(t, k.Lost())
	require.Less(t, len(k.reconnects), 4+5+8)
	require.Equal(t, interval, k.Interval())
}
