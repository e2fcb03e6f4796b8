// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Options of a Pinger.
type Options struct {
	// ClusterID is the ID of this cluster, RemoteClusterID the peer's.
	ClusterID, RemoteClusterID string
	// Port is the own port, Peer the address and the port of the peer's gateway in the tunnel.
	Port int
	Peer netip.AddrPort
	// Changed is called when the peer has become connected or lost, Answered for each answer of a connected peer, and Reconnect when it
	// is time to connect again. They must not block.
	Changed   func(connected bool, latency time.Duration)
	Answered  func(latency time.Duration)
	Reconnect func()
}

// Run pings the peer and answers its pings, until ctx is done.
func Run(ctx context.Context, o Options) error {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{Port: o.Port})
	if err != nil {
		return fmt.Errorf("opening the port for pings, %w", err)
	}
	defer socket.Close()
	defer context.AfterFunc(ctx, func() { _ = socket.Close() })()
	answers := make(chan message)
	go answer(ctx, socket, o, answers)

	var state State
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		before, accepted := state.Connected(), false
		select {
		case <-ctx.Done():
			return nil
		case m := <-answers:
			accepted = state.Answered(m.TimeStamp, m.Refract, time.Now())
		case <-timer.C:
			now := time.Now()
			if state.Check(now) {
				o.Reconnect()
			}
			m := message{ClusterID: o.RemoteClusterID, MsgType: ping, TimeStamp: now.Format(time.RFC3339Nano), Refract: true}
			// A tunnel without a session and a link that is down refuse packets. The state sees that as a ping without an answer.
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

// answer returns pings to the peer, and passes on the answers to ours. It ignores everything else.
func answer(ctx context.Context, socket *net.UDPConn, o Options, answers chan<- message) {
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
			m.MsgType = pong
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
