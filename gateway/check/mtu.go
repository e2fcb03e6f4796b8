// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"time"
)

const (
	// mtuCheckInterval is how often the path to a connected peer is measured. With a longer one, packets that no longer pass are lost for
	// longer, and a path that carries larger packets again is not used.
	mtuCheckInterval = 10 * time.Minute
	// mtuProbeInterval is the pause between probes of the same size.
	mtuProbeInterval = 300 * time.Millisecond
	// mtuRetryDelay is the pause after a measurement that could not be carried out.
	mtuRetryDelay = 5 * time.Second
	// mtuProbes is how many probes of one size have to be lost before the size counts as too large. With fewer, other losses reduce the MTU.
	mtuProbes = 3
	// mtuSizes is how many sizes are tried at once. With more, a measurement is shorter, and has larger bursts.
	mtuSizes = 8
	// minPathMTU is the smallest size that is tried. IPv4 does not require hosts to accept longer packets (RFC 791).
	minPathMTU = 576
)

// PathMTU finds the size of the largest packets that reach a peer. First, it tries the MTU of the tunnel. If all these
// probes are lost, it searches between those sizes that pass and those that do not. It tries the MTU of the tunnel again in each
// round, because only a size that is always lost is too large. A PathMTU has no clock. It is not safe for concurrent use.
type PathMTU struct {
	value int // result of the last measurement, 0 if there was none

	// most is the MTU of the tunnel, low the largest size that has passed, and high the smallest one that has not.
	most, low, high int
	isRunning       bool
	isSearching     bool           // whether the probes of the first round were lost
	sizes           []int          // sizes of this round, in ascending order
	sent            int            // probes of each size that were sent in this round
	pending         map[string]int // sizes of the probes without an answer, by their time stamps
	due             time.Time
}

// Value returns the size of the largest packets that reach the peer, at most the MTU of the tunnel. It is 0 until the first
// measurement is complete.
func (p *PathMTU) Value() int { return p.value }

// Due returns when Next has to be called. It is zero if nothing is planned.
func (p *PathMTU) Due() time.Time { return p.due }

// IsRunning reports whether a measurement is running.
func (p *PathMTU) IsRunning() bool { return p.isRunning }

// Start begins a measurement. most is the MTU of the tunnel.
func (p *PathMTU) Start(most int, now time.Time) {
	*p = PathMTU{value: p.value, most: most, high: most, isRunning: true, sizes: []int{most}, pending: map[string]int{}, due: now}
}

// Stop ends a measurement without a result. Another one is due after the delay, or none if it is 0.
func (p *PathMTU) Stop(delay time.Duration, now time.Time) {
	p.isRunning, p.pending, p.due = false, nil, time.Time{}
	if delay > 0 {
		p.due = now.Add(delay)
	}
}

// Next returns the sizes of the probes to send now, and whether the measurement is complete.
func (p *PathMTU) Next(now time.Time) (sizes []int, isComplete bool) {
	if !p.isRunning {
		return nil, false
	}
	if p.low == p.most {
		return nil, p.complete(now)
	}
	if p.sent == mtuProbes {
		switch p.high = p.smallestLost(); {
		case p.low == 0 && p.isSearching:
			// Nothing passes, or the peer does not answer probes.
			p.Stop(mtuCheckInterval, now)
			return nil, false
		case p.low > 0 && p.high-p.low <= 1:
			return nil, p.complete(now)
		}
		p.sizes, p.sent, p.isSearching = p.spread(), 0, true
	}
	p.sent++
	p.due = now.Add(mtuProbeInterval)
	i, _ := slices.BinarySearch(p.sizes, p.low+1)
	return p.sizes[i:], false
}

func (p *PathMTU) complete(now time.Time) bool {
	p.value = p.low
	p.Stop(mtuCheckInterval, now)
	return true
}

// smallestLost returns the smallest size that was lost and is larger than all that have passed.
func (p *PathMTU) smallestLost() int {
	lost := p.most
	if p.high > p.low {
		lost = p.high
	}
	if i, _ := slices.BinarySearch(p.sizes, p.low+1); i < len(p.sizes) {
		lost = min(lost, p.sizes[i])
	}
	return lost
}

// spread returns sizes between low and high, at equal distances, and the MTU of the tunnel.
func (p *PathMTU) spread() (sizes []int) {
	first := max(p.low+1, minPathMTU)
	for i := range mtuSizes {
		sizes = append(sizes, first+(p.high-first)*i/mtuSizes)
	}
	sizes = append(sizes, p.most)
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// Sent records a probe.
func (p *PathMTU) Sent(size int, stamp string) { p.pending[stamp] = size }

// Answered records the answer to a probe. It ignores answers to anything else.
func (p *PathMTU) Answered(stamp string, now time.Time) {
	size, ok := p.pending[stamp]
	if !ok {
		return
	}
	delete(p.pending, stamp)
	p.low = max(p.low, size)
	if p.low == p.most {
		p.due = now
	}
}
