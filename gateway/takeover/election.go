// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// probeInterval is how often a pod probes the holder of the Lease. A shorter interval detects a loss sooner, and
	// costs more packets.
	probeInterval = 200 * time.Millisecond
	// missedProbes is how many probes in a row the holder may leave unanswered before it counts as lost. With a smaller
	// number, a gateway that gets too little CPU time loses its role.
	missedProbes = 5
	// retryInterval is the pause after an attempt to take over or to write the endpoint, whether it succeeded or not.
	retryInterval = time.Second

	// minTakeoverDelay is the minimum delay between two takeovers because of unanswered probes. With a shorter delay,
	// two running pods whose probes are blocked would take over from each other every second.
	minTakeoverDelay = 10 * time.Second
	// maxTakeoverDelay limits the delay, which doubles with each takeover because of unanswered probes. A longer delay
	// leaves the gateway without an active pod for longer.
	maxTakeoverDelay = 10 * time.Minute
	// takeoverMemory is how long a takeover increases the delay before the next one. If it were not longer than
	// maxTakeoverDelay, the delay would start again at its minimum while probes are still blocked.
	takeoverMemory = 2 * maxTakeoverDelay
	// maxViewAge is how long after its own write of the Lease a pod ignores Views with an older Lease. With a longer
	// time, a pod whose watch has stopped takes no part in the election for longer.
	maxViewAge = 10 * time.Second
)

// Reason is the reason why a pod takes over.
type Reason string

const (
	// Elected means that no pod held the Lease.
	Elected Reason = "elected"
	// Lost means that the holder did not answer probes.
	Lost Reason = "lost"
	// Leaving means that the holder is about to end.
	Leaving Reason = "leaving"
)

// Action is the kind of a Step.
type Action int

const (
	// Wait means that there is nothing to do before the next change.
	Wait Action = iota
	// Probe means that this pod must probe the holder of the Lease.
	Probe
	// Claim means that this pod must take the Lease, and then write its address to the status of the gateway.
	Claim
	// Publish means that this pod holds the Lease, and must write its address to the status of the gateway.
	Publish
)

// View contains the state of the Lease and of the gateway according to the caches.
type View struct {
	// Known is true if the gateway exists and its objects were read.
	Known bool
	// Version is the version of the Lease, empty if there is none.
	Version string
	// Holder is the address of the pod that holds the Lease. It is not valid if there is no Lease.
	Holder netip.Addr
	// Endpoint is the address in the status of the gateway. It is not valid if there is none.
	Endpoint netip.Addr
}

// target returns the address of the pod to probe: the holder of the Lease, or the active pod while there is no Lease.
func (v View) target() netip.Addr {
	if v.Holder.IsValid() {
		return v.Holder
	}
	return v.Endpoint
}

// Step is the next action of a pod.
type Step struct {
	Action Action
	// Target is the pod to probe.
	Target netip.Addr
	// Reason is the reason of a claim.
	Reason Reason
	// Delayed is true for a claim that had to wait because of an earlier takeover. In this case, probes may be blocked.
	Delayed bool
}

// Election is the state of one pod. It is not safe for concurrent use.
type Election struct {
	// Own is the address of the pod.
	Own netip.Addr

	target netip.Addr
	// pending contains the probes that were sent after the last answered one.
	pending []nonce
	// leaving is true if the target is about to end, according to its last answer.
	leaving bool
	// attempted is the time of this pod's last attempt to write, successful or not.
	attempted time.Time
	// delayed is true while the target is lost and this pod has to wait.
	delayed bool

	// involved is the time of the last takeover because of unanswered probes that gave the Lease to this pod or took it
	// from this pod. pause is how long this pod waits after that takeover.
	involved time.Time
	pause    time.Duration

	// replaced is the version of the Lease that this pod replaced when it became the holder, and won is the time of
	// this change. Views with this version are outdated.
	replaced string
	won      time.Time
}

// Next returns the next action. A pod that is not ready, because it cannot carry packets or is about to end, takes no
// part in the election.
func (e *Election) Next(v View, ready bool, now time.Time) Step {
	if !v.Known {
		return Step{}
	}
	if v.Version == e.replaced && !e.won.IsZero() && now.Sub(e.won) < maxViewAge {
		v.Holder = e.Own
	}
	e.observe(v, now)
	mayWrite := e.attempted.IsZero() || now.Sub(e.attempted) >= retryInterval
	if !ready {
		return Step{}
	}
	if v.Holder == e.Own {
		if v.Endpoint == e.Own || !mayWrite {
			return Step{}
		}
		return Step{Action: Publish}
	}
	reason := e.findReason(v, now)
	switch {
	case reason != "" && mayWrite:
		return Step{Action: Claim, Reason: reason, Delayed: e.delayed}
	case e.target.IsValid() && e.target != e.Own:
		// Probes are also sent between attempts, because the holder may be back before the next attempt.
		return Step{Action: Probe, Target: e.target}
	}
	return Step{}
}

// findReason returns why this pod, which does not hold the Lease, has to take it. It returns an empty reason as long as
// the holder may be alive.
func (e *Election) findReason(v View, now time.Time) Reason {
	switch {
	case !v.Holder.IsValid() && (!v.Endpoint.IsValid() || v.Endpoint == e.Own):
		return Elected
	case e.leaving:
		return Leaving
	case len(e.pending) < missedProbes:
		return ""
	case now.Sub(e.involved) < e.pause:
		e.delayed = true
		return ""
	}
	return Lost
}

// observe records a change of the pod to probe. If another pod has taken the Lease from this pod while this pod is
// running, its probes were not answered in time.
func (e *Election) observe(v View, now time.Time) {
	if v.target() == e.target {
		return
	}
	if e.target == e.Own && v.Holder.IsValid() {
		e.recordTakeover(now)
	}
	e.target, e.pending, e.leaving, e.delayed = v.target(), nil, false, false
}

// Sent records a probe.
func (e *Election) Sent(n nonce) {
	e.pending = append(e.pending, n)
	// Late answers count, too, but the number of pending probes must be limited.
	e.pending = e.pending[max(0, len(e.pending)-4*missedProbes):]
}

// Answered records an answer of the target, and returns false if this pod sent no such probe, or has already accepted
// an answer to it or to a later probe.
func (e *Election) Answered(n nonce, active, leaving bool) bool {
	i := slices.Index(e.pending, n)
	if i < 0 {
		return false
	}
	e.leaving = leaving
	// An answer from a holder that is not active is ignored. If it stays inactive, it is replaced as if it had not
	// answered.
	if active {
		e.pending, e.delayed = e.pending[i+1:], false
	} else {
		e.pending[i] = nonce{}
	}
	return true
}

// Attempted records that this pod has tried to write.
func (e *Election) Attempted(now time.Time) { e.attempted = now }

// Won records that this pod has replaced a version of the Lease with its own.
func (e *Election) Won(reason Reason, replaced string, now time.Time) {
	e.replaced, e.won = replaced, now
	if reason == Lost {
		e.recordTakeover(now)
	}
	e.target, e.pending, e.leaving, e.delayed = e.Own, nil, false, false
}

// recordTakeover records a takeover because of unanswered probes, and sets the pause that follows.
func (e *Election) recordTakeover(now time.Time) {
	if e.pause == 0 || now.Sub(e.involved) >= takeoverMemory {
		e.pause = minTakeoverDelay
	} else {
		e.pause = min(2*e.pause, maxTakeoverDelay)
	}
	e.involved = now
}
