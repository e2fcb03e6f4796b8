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

// answer answers the peer's pings, and passes the answers to our pings to the channel. It ignores all other messages.
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
