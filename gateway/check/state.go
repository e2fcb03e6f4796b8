// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"time"
)

const (
	// liqoInterval is how often a gateway of Liqo is pinged. It is the interval of Liqo's own pings.
	liqoInterval = 2 * time.Second
	// liqoLosses is the number of intervals without an answer after which a gateway of Liqo counts as lost.
	liqoLosses = 5

	// interval is how often a gateway is pinged if it runs Refract or has not answered yet. A shorter interval detects
	// a loss sooner, and costs more traffic for each peer.
	interval = 300 * time.Millisecond
	// losses is the number of intervals without an answer after which a gateway of Refract counts as lost.
	losses = 3
	// recoveries is the number of answers after a loss that are needed before the peer counts as connected again, so
	// that a flapping connection is not used.
	recoveries = 3

	// minReconnectDelay is the pause between the first two attempts to reconnect. If a handshake takes longer than the
	// pause, a later attempt with a longer pause succeeds. A longer first pause stalls TCP connections for seconds if
	// the peer's gateway is not back at the first attempt.
	minReconnectDelay = 500 * time.Millisecond
	// moveReconnectDelay is the pause between attempts to reach another pod of the peer's gateway, until the peer
	// counts as lost. The first attempts may be made before the network routes packets to that pod.
	moveReconnectDelay = 200 * time.Millisecond
	// maxReconnectDelay limits the pause, which doubles with each attempt.
	maxReconnectDelay = 16 * time.Second
)

// State is the state of a peer, according to pings and answers. It is not safe for concurrent use.
type State struct {
	begun   time.Time            // when the first ping was sent
	pending map[string]time.Time // time stamps of pings without an answer, and when they were sent
	last    time.Time            // when the most recent answered ping was sent
	stamp   string               // time stamp of that ping
	moved   bool                 // another pod of the peer's gateway has taken over, and has not answered a ping yet

	refract, connected, lost bool
	answers                  int // number of consecutive answers
	latency                  time.Duration

	reconnectAt    time.Time
	reconnectPause time.Duration
}

// Connected reports whether the peer answers.
func (s *State) Connected() bool { return s.connected }

// Lost reports whether the peer answered earlier, but no longer answers.
func (s *State) Lost() bool { return s.lost && !s.connected }

// Refract reports whether the peer is a gateway that runs Refract.
func (s *State) Refract() bool { return s.refract }

// Latency returns the round-trip time of the last answer. It is 0 if the peer is not connected.
func (s *State) Latency() time.Duration {
	if !s.connected {
		return 0
	}
	return s.latency
}

// Interval returns how long to wait before the next ping.
func (s *State) Interval() time.Duration {
	if s.moved {
		return moveReconnectDelay
	}
	if s.isLiqo() {
		return liqoInterval
	}
	return interval
}

// isLiqo reports whether the peer has answered, but not in the way Refract does.
func (s *State) isLiqo() bool { return !s.refract && !s.last.IsZero() }

// lossAfter returns how long a ping may be unanswered before the peer counts as lost.
func (s *State) lossAfter() time.Duration {
	if s.isLiqo() {
		return liqoInterval * liqoLosses
	}
	return interval * losses
}

// Sent records that a ping was sent.
func (s *State) Sent(stamp string, now time.Time) {
	if s.pending == nil {
		s.pending, s.begun = map[string]time.Time{}, now
	}
	for old, sent := range s.pending {
		if now.Sub(sent) > 2*s.lossAfter() {
			delete(s.pending, old)
		}
	}
	s.pending[stamp] = now
}

// Answered records an answer. It returns false if no such ping was sent recently, or if an answer to this ping or a
// later one was already recorded. Such an answer is a replay or a forgery.
func (s *State) Answered(stamp string, refract bool, now time.Time) bool {
	sent, ok := s.pending[stamp]
	if !ok || sent.Before(s.last) {
		return false
	}
	delete(s.pending, stamp)
	s.last, s.latency, s.refract = sent, now.Sub(sent), refract
	s.stamp, s.moved = stamp, false
	s.answers++
	if !s.connected && (!s.lost || s.answers >= recoveries) {
		s.connected, s.lost = true, false
	}
	s.reconnectAt, s.reconnectPause = time.Time{}, 0
	return true
}

// Moved records that another pod of the peer's gateway answers from now on. It returns false unless stamp is the time stamp of the last
// answered ping or of a later one, which only the peer knows.
func (s *State) Moved(stamp string, now time.Time) bool {
	sent, isPending := s.pending[stamp]
	isLast := stamp == s.stamp && now.Sub(s.last) < s.lossAfter()
	if s.moved || !s.connected || !isLast && (!isPending || sent.Before(s.last)) {
		return false
	}
	s.moved, s.reconnectAt = true, now
	return true
}

// Check updates the state for the time that has passed. It returns true if it is time to reconnect: immediately after a
// loss, and then after increasing pauses.
func (s *State) Check(now time.Time) (reconnect bool) {
	answered := s.last
	if answered.IsZero() {
		answered = s.begun
	}
	if answered.IsZero() || now.Sub(answered) < s.lossAfter() {
		if !s.moved || now.Before(s.reconnectAt) {
			return false
		}
		s.reconnectAt = now.Add(moveReconnectDelay)
		return true
	}
	s.moved = false
	if s.connected {
		s.connected, s.lost = false, true
	}
	s.answers = 0
	if !s.reconnectAt.IsZero() && now.Before(s.reconnectAt) {
		return false
	}
	s.reconnectPause = min(max(2*s.reconnectPause, minReconnectDelay), maxReconnectDelay)
	s.reconnectAt = now.Add(s.reconnectPause)
	return true
}
