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

	"golang.org/x/sys/unix"
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
	// MTU returns the MTU of the tunnel. If it is not nil, the path to a peer of Refract is measured when the peer becomes
	// connected, when Remeasure receives a value, and then at intervals. PathMTU is called with the result of each measurement: the
	// size of the largest packets that reach the peer. It must not block.
	MTU       func() int
	Remeasure <-chan struct{}
	PathMTU   func(size int)
	// Keys is nil if the gateways do not exchange keys.
	Keys *KeyExchange
	// Terms is nil if the gateway has only one pod.
	Terms *Terms
}

// Terms let a pod find out from the peer that another pod of its gateway has become active, while it does not reach the API server. The
// functions must not block.
type Terms struct {
	// Own returns the term of this pod, which is positive. A pod that becomes active later has a greater one.
	Own func() int64
	// Superseded is called for each answer that contains a later term.
	Superseded func(term int64)
}

// KeyExchange lets two gateways of Refract replace their keys without losing the connection: each one announces the public keys that
// it may use, and learns which of them the other one accepts. The functions must not block, and are called from several goroutines.
type KeyExchange struct {
	// Own returns the public keys of this gateway, first the one in use. OfPeer returns the keys with which the peer may connect.
	// Both return at most MaxKeys keys.
	Own, OfPeer func() [][]byte
	// Announced is called with the keys in each ping of the peer, and Accepted with the keys of this gateway that the peer accepts.
	Announced, Accepted func(keys [][]byte)
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
	if err := setDontFragment(socket); err != nil {
		return err
	}
	answers := make(chan message)
	var last atomic.Pointer[message]
	go answer(ctx, socket, o, answers, &last)

	var state State
	var path PathMTU
	timer, pathTimer := time.NewTimer(0), time.NewTimer(0)
	defer timer.Stop()
	defer pathTimer.Stop()
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
		case <-o.Remeasure:
			if state.Connected() && state.Refract() {
				path.Start(o.MTU(), time.Now())
			}
		case <-pathTimer.C:
			measure(socket, o, &path)
		case m := <-answers:
			if m.MTU != 0 {
				path.Answered(m.TimeStamp, time.Now())
			} else if !m.Moved {
				accepted = state.Answered(m.TimeStamp, m.Refract, time.Now())
				if accepted && o.Keys != nil && len(m.Keys) > 0 {
					o.Keys.Accepted(m.Keys)
				}
				if accepted && o.Terms != nil && m.Term > o.Terms.Own() {
					o.Terms.Superseded(m.Term)
				}
			} else if state.Moved(m.TimeStamp, time.Now()) {
				timer.Reset(0)
			}
		case <-timer.C:
			now := time.Now()
			if state.Check(now) {
				o.Reconnect()
			}
			m := message{ClusterID: o.RemoteClusterID, MsgType: ping, TimeStamp: now.Format(time.RFC3339Nano), Refract: true}
			if o.Keys != nil && state.Refract() {
				m.Keys = o.Keys.Own()
			}
			if o.Terms != nil && state.Refract() {
				m.Term = o.Terms.Own()
			}
			// The write fails if the tunnel has no session or the link is down. Such a ping counts as unanswered.
			_, _ = socket.WriteToUDPAddrPort(m.encode(), o.Peer)
			state.Sent(m.TimeStamp, now)
			timer.Reset(state.Interval())
		}
		if state.Connected() != before {
			o.Changed(state.Connected(), state.Latency())
			path.Stop(0, time.Now())
			if state.Connected() && state.Refract() && o.MTU != nil {
				path.Start(o.MTU(), time.Now())
			}
		}
		if !path.Due().IsZero() {
			pathTimer.Reset(time.Until(path.Due()))
		}
		if accepted && state.Connected() {
			o.Answered(state.Latency())
		}
	}
}

// measure sends the next probes of the path MTU, or begins the next measurement.
func measure(socket *net.UDPConn, o Options, path *PathMTU) {
	now := time.Now()
	if path.Due().IsZero() || now.Before(path.Due()) {
		return
	}
	if !path.IsRunning() {
		path.Start(o.MTU(), now)
	}
	sizes, isComplete := path.Next(now)
	if isComplete {
		o.PathMTU(path.Value())
	}
	for _, size := range sizes {
		m := message{ClusterID: o.RemoteClusterID, MsgType: ping, TimeStamp: time.Now().Format(time.RFC3339Nano), Refract: true, MTU: size}
		if _, err := socket.WriteToUDPAddrPort(m.encodeProbe(), o.Peer); err != nil {
			// The link may be about to get another MTU. A probe that was not sent says nothing about the path.
			path.Stop(mtuRetryDelay, now)
			return
		}
		path.Sent(size, m.TimeStamp)
	}
}

// setDontFragment makes the kernel send packets as they are, up to the MTU of the link.
func setDontFragment(socket *net.UDPConn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	}); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("forbidding fragments of pings, %w", failed)
	}
	return nil
}

// answer answers the peer's pings, stores the last answer, and passes on the peer's answers to this gateway's pings. It
// ignores everything else.
func answer(ctx context.Context, socket *net.UDPConn, o Options, answers chan<- message, last *atomic.Pointer[message]) {
	buffer := make([]byte, maxProbe+1)
	latestTerm := int64(0)
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
			m.Keys = exchangeKeys(o.Keys, m.Keys)
			if m.Term > 0 {
				latestTerm = max(latestTerm, m.Term)
				m.Term = latestTerm
			}
			if m.MTU == 0 {
				last.Store(&m)
			}
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

// exchangeKeys passes on the keys in a ping, and returns those for its answer.
func exchangeKeys(exchange *KeyExchange, announced [][]byte) [][]byte {
	if exchange == nil || len(announced) == 0 {
		return nil
	}
	exchange.Announced(announced)
	return exchange.OfPeer()
}
