// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// Options are the options of Run.
type Options struct {
	// ClusterID is the ID of this cluster. RemoteClusterID is the ID of the peer.
	ClusterID, RemoteClusterID string
	// Port is the port of this gateway. Peer is the address and port of the peer's gateway in the tunnel.
	Port int
	Peer netip.AddrPort
	// Changed is called when the peer becomes connected or is lost. Answered is called for each answer of a connected
	// peer. Reconnect is called when the tunnel should be reconnected. The functions must not block.
	Changed   func(connected bool, latency time.Duration)
	Answered  func(latency time.Duration)
	Reconnect func()
}

// ErrMoved cancels the context of Run when another pod of this gateway has become active.
var ErrMoved = errors.New("another pod of the gateway is active")

// moveDelay is how long Run waits after it has sent a message, so that the tunnel exists until the message has left. A longer delay lets the peer
// send more packets to this pod.
const moveDelay = 20 * time.Millisecond

// Run pings the peer and answers its pings, until ctx is done. If the cause is ErrMoved, Run then repeats its last answer with a mark, so
// that a client of Refract starts a handshake with the other pod before it misses answers.
func Run(ctx context.Context, o Options) error {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{Port: o.Port})
	if err != nil {
		return fmt.Errorf("opening the port for pings, %w", err)
	}
	defer socket.Close()
	answers := make(chan message)
	var last atomic.Pointer[message]
	go answer(ctx, socket, o, answers, &last)

	var state State
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		before, accepted := state.Connected(), false
		select {
		case <-ctx.Done():
			if m := last.Load(); m != nil && m.Refract && errors.Is(context.Cause(ctx), ErrMoved) {
				m := *m
				m.Moved = true
				_, _ = socket.WriteToUDPAddrPort(m.encode(), o.Peer)
				time.Sleep(moveDelay)
			}
			return nil
		case m := <-answers:
			if !m.Moved {
				accepted = state.Answered(m.TimeStamp, m.Refract, time.Now())
			} else if state.Moved(m.TimeStamp, time.Now()) {
				timer.Reset(0)
			}
		case <-timer.C:
			now := time.Now()
			if state.Check(now) {
				o.Reconnect()
			}
			m := message{ClusterID: o.RemoteClusterID, MsgType: ping, TimeStamp: now.Format(time.RFC3339Nano), Refract: true}
			// The write fails if the tunnel has no session or the link is down. For the state, this is a ping without
			// an answer.
			_, _ = socket.WriteToUDPAddrPort(m.encode(), o.Peer)
			state.Sent(m.TimeStamp, now)
			timer.Reset(state.Interval())
		}
		if state.Connected() != before {
			o.Changed(state.Connected(), state.Latency())
		}
		if accepted && state.Connected() {
			o.Answered(state.Latency())
		}
	}
}

// answer answers the peer's pings, stores the last answer, and passes on the peer's answers to this gateway's pings. It
// ignores everything else.
func answer(ctx context.Context, socket *net.UDPConn, o Options, answers chan<- message, last *atomic.Pointer[message]) {
	buffer := make([]byte, maxMessage+1)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || from.Addr().Unmap() != o.Peer.Addr() {
			continue
		}
		m, err := parseMessage(buffer[:n])
		switch {
		case err != nil:
		case m.MsgType == ping && m.ClusterID == o.ClusterID:
			m.MsgType, m.Moved = pong, false
			last.Store(&m)
			_, _ = socket.WriteToUDPAddrPort(m.encode(), from)
		case m.MsgType == pong && m.ClusterID == o.RemoteClusterID:
			select {
			case answers <- m:
			case <-ctx.Done():
				return
			}
		}
	}
}
