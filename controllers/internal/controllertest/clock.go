// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// ShiftedClock is a running clock that a test can set forward. Its timers and tickers are real, so that controllers
// that use them continue to run. The zero value shows the actual time. It is safe for concurrent use.
type ShiftedClock struct {
	clock.RealClock
	offset atomic.Int64
}

// Shift sets the clock forward.
func (c *ShiftedClock) Shift(by time.Duration) { c.offset.Add(int64(by)) }

// Now returns the shifted time.
func (c *ShiftedClock) Now() time.Time {
	return c.RealClock.Now().Add(time.Duration(c.offset.Load()))
}

// Since returns the time since at, according to the shifted clock.
func (c *ShiftedClock) Since(at time.Time) time.Duration { return c.Now().Sub(at) }
