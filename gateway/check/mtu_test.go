// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runMeasurement runs a measurement. pass reports whether the probe with this number and size arrives. It returns the number of
// probes, and how long the measurement took.
func runMeasurement(t *testing.T, p *PathMTU, most int, now time.Time, pass func(number, size int) bool) (probes int, took time.Duration) {
	t.Helper()
	begun := now
	p.Start(most, now)
	for p.IsRunning() {
		require.Less(t, probes, 1000)
		require.False(t, p.Due().Before(now))
		now = p.Due()
		sizes, _ := p.Next(now)
		for _, size := range sizes {
			require.LessOrEqual(t, size, most)
			require.GreaterOrEqual(t, size, minPathMTU)
			probes++
			stamp := fmt.Sprint(probes)
			p.Sent(size, stamp)
			if pass(probes, size) {
				p.Answered(stamp, now.Add(50*time.Millisecond))
				p.Answered(stamp, now.Add(50*time.Millisecond))
			}
		}
	}
	return probes, now.Sub(begun)
}

// TestPathMTU checks the results for all kinds of paths, and how long they take.
func TestPathMTU(t *testing.T) {
	now := time.Now()
	for _, most := range []int{576, 1340, 1440, 8840} {
		for path := minPathMTU; path <= most; path += 7 {
			p := &PathMTU{}
			probes, took := runMeasurement(t, p, most, now, func(_, size int) bool { return size <= path })
			require.Equal(t, path, p.Value())
			require.LessOrEqual(t, took, 7*time.Second)
			require.LessOrEqual(t, probes, 150)
			require.Equal(t, now.Add(took+mtuCheckInterval), p.Due())
		}
		p := &PathMTU{}
		probes, took := runMeasurement(t, p, most, now, func(_, _ int) bool { return true })
		require.Equal(t, most, p.Value())
		require.Equal(t, 1, probes, "an ordinary path costs one packet")
		require.Zero(t, took.Truncate(100*time.Millisecond))
	}
}

// TestOtherLosses checks that lost probes of a path that carries all sizes do not reduce the MTU.
func TestOtherLosses(t *testing.T) {
	now := time.Now()
	for lost := range 5 {
		p := &PathMTU{}
		runMeasurement(t, p, 1340, now, func(number, _ int) bool { return number > lost })
		require.Equal(t, 1340, p.Value(), "%d probes lost", lost)
	}
	p := &PathMTU{}
	runMeasurement(t, p, 1340, now, func(number, _ int) bool { return number%4 == 0 })
	require.Equal(t, 1340, p.Value())
}

// TestNoResult checks that the last result remains if a measurement has none, and that it is replaced when the path changes.
func TestNoResult(t *testing.T) {
	now, p := time.Now(), &PathMTU{}
	runMeasurement(t, p, 1340, now, func(_, size int) bool { return size <= 1216 })
	runMeasurement(t, p, 1340, now, func(_, _ int) bool { return false })
	require.Equal(t, 1216, p.Value(), "the peer does not answer probes")
	p.Start(1340, now)
	p.Answered("", now)
	p.Answered("another", now)
	sizes, _ := p.Next(now)
	require.Equal(t, []int{1340}, sizes)
	p.Sent(1340, "x")
	p.Stop(0, now)
	require.Zero(t, p.Due())
	p.Answered("x", now)
	require.Equal(t, 1216, p.Value(), "the measurement was stopped")
	runMeasurement(t, p, 1340, now, func(_, _ int) bool { return true })
	require.Equal(t, 1340, p.Value())
}
