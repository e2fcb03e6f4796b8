// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"math"
	"testing"
	"time"
)

// TestLeasesAreBounded checks that a consumer can choose the duration of its Lease only within limits, so that a lost
// consumer does not continue to receive traffic.
func TestLeasesAreBounded(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int32]time.Duration{20: 20 * time.Second, math.MaxInt32: maxLeasePeriod, 0: minLeasePeriod, -1: minLeasePeriod} {
		if got := boundedDuration(&seconds); got != want {
			t.Errorf("a Lease of %d s lasts for %s, want %s", seconds, got, want)
		}
	}
	if got := boundedDuration(nil); got != defaultLeasePeriod {
		t.Errorf("a Lease without a duration lasts for %s, want %s", got, defaultLeasePeriod)
	}
}

// TestHeartbeatsAreDatedByTheReceiver checks that the time of a renewal comes from the clock of the process that
// receives the heartbeat, and not from the Lease.
func TestHeartbeatsAreDatedByTheReceiver(t *testing.T) {
	t.Parallel()
	h := heartbeats{seen: map[string]beat{}}
	now := time.Now()
	first := &lease{version: "1", duration: time.Minute}
	if got := h.lastBeat("rome", first, now); got.renewed || !got.expires.Equal(now.Add(time.Minute)) {
		t.Errorf("the first Lease is %+v: it may be old", got)
	}
	if got := h.lastBeat("rome", first, now.Add(time.Second)); !got.at.Equal(now) {
		t.Errorf("the same Lease is %+v: it was not renewed", got)
	}
	later := now.Add(30 * time.Second)
	if got := h.lastBeat("rome", &lease{version: "2", duration: time.Minute}, later); !got.renewed || !got.at.Equal(later) {
		t.Errorf("the renewed Lease is %+v", got)
	}
	if got := h.lastBeat("rome", nil, later.Add(time.Second)); !got.at.Equal(later) {
		t.Errorf("the Lease that is gone is %+v: it counts from when it was last renewed", got)
	}
	if got := h.lastBeat("milan", nil, now); got.renewed || !got.expires.After(now) {
		t.Errorf("a Lease that is gone after a restart is %+v", got)
	}
}
