// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	own   = netip.MustParseAddr("10.1.0.1")
	other = netip.MustParseAddr("10.1.0.2")
	third = netip.MustParseAddr("10.1.0.3")
	begun = time.Unix(1000, 0)
)

// pod is an Election with a clock that only the test advances.
type pod struct {
	Election
	now    time.Time
	probes uint64
}

func newPod(address netip.Addr) *pod { return &pod{Election: Election{Own: address}, now: begun} }

// next returns the next step of a pod that is ready, and counts a probe as sent.
func (p *pod) next(v View) Step {
	step := p.Next(v, true, p.now)
	if step.Action == Probe {
		p.probes++
		p.Sent(nonceOf(p.probes))
	}
	return step
}

// run moves the clock until the pod claims the Lease or the time is over. The holder answers each probe if answers is true.
func (p *pod) run(v View, d time.Duration, answers bool) (claim Step, after time.Duration) {
	from := p.now
	for ; p.now.Sub(from) < d; p.now = p.now.Add(probeInterval) {
		before := p.probes
		if step := p.next(v); step.Action == Claim || step.Action == Publish {
			return step, p.now.Sub(from)
		}
		if answers && p.probes > before {
			p.Answered(nonceOf(p.probes), true, false)
		}
	}
	return Step{}, d
}

func nonceOf(number uint64) (n nonce) {
	binary.BigEndian.PutUint64(n[:], number)
	return n
}

func held(holder netip.Addr, version string) View {
	return View{Known: true, Version: version, Holder: holder, Endpoint: holder}
}

// TestSteps checks the first step of a pod for each state of the Lease and of the endpoint.
func TestSteps(t *testing.T) {
	for name, c := range map[string]struct {
		view  View
		ready bool
		want  Step
	}{
		"the gateway is not known":                {View{}, true, Step{}},
		"nobody holds the Lease":                  {View{Known: true}, true, Step{Action: Claim, Reason: Elected}},
		"not ready":                               {View{Known: true}, false, Step{}},
		"active without a Lease":                  {View{Known: true, Endpoint: own}, true, Step{Action: Claim, Reason: Elected}},
		"another pod is active without a Lease":   {View{Known: true, Endpoint: other}, true, Step{Action: Probe, Target: other}},
		"holder":                                  {held(own, "1"), true, Step{}},
		"holder without an endpoint":              {View{Known: true, Holder: own}, true, Step{Action: Publish}},
		"holder, and somebody changed the status": {View{Known: true, Holder: own, Endpoint: other}, true, Step{Action: Publish}},
		"holder that is not ready":                {View{Known: true, Holder: own}, false, Step{}},
		"another pod holds the Lease":             {held(other, "1"), true, Step{Action: Probe, Target: other}},
		"not ready, another pod holds the Lease":  {held(other, "1"), false, Step{}},
		"the holder has not published":            {View{Known: true, Holder: other, Endpoint: third}, true, Step{Action: Probe, Target: other}},
		"active, but another pod is the holder":   {View{Known: true, Holder: other, Endpoint: own}, true, Step{Action: Probe, Target: other}},
	} {
		e := Election{Own: own}
		require.Equal(t, c.want, e.Next(c.view, c.ready, begun), name)
	}
}

// TestLoss checks that a pod takes over one second after the last probe that was answered, and not while the holder answers.
func TestLoss(t *testing.T) {
	p, view := newPod(own), held(other, "1")
	claim, _ := p.run(view, time.Hour, true)
	require.Zero(t, claim)
	claim, after := p.run(view, time.Hour, false)
	require.Equal(t, Step{Action: Claim, Reason: Lost}, claim)
	require.Equal(t, time.Second, after)

	// A process that was suspended has sent no probes in the meantime, so it must probe the holder first.
	p = newPod(own)
	p.run(view, time.Minute, true)
	p.now = p.now.Add(time.Hour)
	require.Equal(t, Probe, p.next(view).Action)

	// A late answer must count, but only once, and only for its own probe and earlier ones. A holder that is not active
	// must count as lost.
	p = newPod(own)
	p.run(view, 800*time.Millisecond, false)
	require.True(t, p.Answered(nonceOf(1), true, false))
	require.False(t, p.Answered(nonceOf(1), true, false), "replayed")
	require.False(t, p.Answered(nonceOf(99), true, false), "invented")
	_, after = p.run(view, time.Hour, false)
	require.Equal(t, 400*time.Millisecond, after)
	p = newPod(own)
	for range missedProbes {
		p.next(view)
		require.True(t, p.Answered(nonceOf(p.probes), false, false))
		require.False(t, p.Answered(nonceOf(p.probes), false, false), "replayed")
	}
	require.Equal(t, Step{Action: Claim, Reason: Lost}, p.next(view))
}

// TestRetries checks that a pod that cannot write continues to probe the holder, and gives up when the holder is back.
func TestRetries(t *testing.T) {
	p, view := newPod(own), held(other, "1")
	claim, _ := p.run(view, time.Hour, false)
	require.Equal(t, Claim, claim.Action)
	p.Attempted(p.now)
	claim, after := p.run(view, time.Hour, false)
	require.Equal(t, Claim, claim.Action)
	require.Equal(t, retryInterval, after)
	p.Attempted(p.now)
	claim, _ = p.run(view, time.Hour, true)
	require.Zero(t, claim, "the holder answers again")

	// If the status contains another address, the holder writes its own address immediately, and retries after a
	// second.
	p = newPod(own)
	changed := View{Known: true, Version: "1", Holder: own, Endpoint: other}
	require.Equal(t, Publish, p.next(changed).Action)
	p.Attempted(p.now)
	_, after = p.run(changed, time.Hour, false)
	require.Equal(t, retryInterval, after)
}

// TestLeaving checks that a pod takes over immediately from a pod that is leaving, unless the latter is back before the
// write succeeds.
func TestLeaving(t *testing.T) {
	p, view := newPod(own), held(other, "1")
	p.next(view)
	require.True(t, p.Answered(nonceOf(p.probes), true, true))
	require.Equal(t, Step{Action: Claim, Reason: Leaving}, p.next(view))
	p.Attempted(p.now)
	p.next(view)
	require.True(t, p.Answered(nonceOf(p.probes), true, false))
	claim, _ := p.run(view, time.Hour, true)
	require.Zero(t, claim)

	// Hand-overs do not delay a later takeover.
	for version, holder := range []netip.Addr{third, other, third} {
		p.next(held(holder, string(rune('a'+version))))
		p.Answered(nonceOf(p.probes), true, true)
		require.Equal(t, Step{Action: Claim, Reason: Leaving}, p.next(held(holder, string(rune('a'+version)))))
	}
	p.Won(Leaving, "c", p.now)
	require.Zero(t, p.next(held(own, "d")))
	claim, after := p.run(held(other, "e"), time.Hour, false)
	require.Equal(t, Lost, claim.Reason)
	require.Equal(t, minTakeoverDelay, after, "this pod has lost the Lease while it was alive")
}

// TestOutdatedView checks that a pod that has taken the Lease ignores a View with the previous Lease.
func TestOutdatedView(t *testing.T) {
	p, before := newPod(own), held(other, "1")
	p.run(before, time.Hour, false)
	p.Won(Lost, "1", p.now)
	step := p.next(before)
	require.Equal(t, Publish, step.Action, "the endpoint of the cache is outdated, too, and the write has no effect")
	require.Zero(t, p.next(held(own, "2")))
	require.Equal(t, Step{Action: Probe, Target: third}, p.next(held(third, "3")))

	p = newPod(own)
	require.Equal(t, Claim, p.next(View{Known: true}).Action)
	p.Won(Elected, "", p.now)
	require.Equal(t, Publish, p.next(View{Known: true}).Action)
	p.now = p.now.Add(maxViewAge)
	require.Equal(t, Step{Action: Claim, Reason: Elected}, p.next(View{Known: true}), "somebody has deleted the Lease")
}

// TestBlockedProbes checks that the pauses between takeovers grow if the probes of two pods never arrive, and that each
// takeover except for the first one is marked as delayed.
func TestBlockedProbes(t *testing.T) {
	pods := map[netip.Addr]*pod{own: newPod(own), other: newPod(other)}
	view, version := held(own, "0"), 0
	var times []time.Duration
	for now := begun; now.Sub(begun) < time.Hour; now = now.Add(probeInterval) {
		for address, p := range pods {
			p.now = now
			step := p.next(view)
			if step.Action != Claim {
				continue
			}
			require.Equal(t, Lost, step.Reason)
			require.Equal(t, version > 0, step.Delayed)
			version++
			p.Attempted(now)
			p.Won(Lost, view.Version, now)
			view = held(address, string(rune('0'+version)))
			times = append(times, now.Sub(begun).Round(time.Second))
		}
	}
	require.Greater(t, len(times), 8)
	require.Less(t, len(times), 13)
	for i := 1; i < len(times); i++ {
		want := min(minTakeoverDelay<<(i-1), maxTakeoverDelay)
		require.InDelta(t, want.Seconds(), (times[i] - times[i-1]).Seconds(), 2, "%s", times)
	}

	// A takeover before takeoverMemory no longer increases the pause.
	p := pods[own]
	p.now = p.now.Add(takeoverMemory)
	claim, _ := p.run(held(third, "x"), time.Hour, false)
	require.Equal(t, Step{Action: Claim, Reason: Lost}, claim)
	p.Won(Lost, "x", p.now)
	require.Equal(t, minTakeoverDelay, p.pause)
}
