// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
)

// Port is the UDP port at which a pod of a gateway answers the probes of the other pods.
const Port = 6093

// Options are the options of a Member.
type Options struct {
	// Address is the IPv4 address of the pod. Only packets that arrive on its link are read.
	Address netip.Addr
	// View reads the caches. It must not block.
	View func() View
	// Claim takes the Lease unless it has changed since the View, and writes the address of this pod to the status of
	// the gateway. It returns false if another pod took the Lease first. The error has no effect on the election,
	// because the write is retried.
	Claim func(ctx context.Context, v View, step Step) (won bool, err error)
	// Publish writes the address of this pod to the status of the gateway, if this pod still holds the Lease.
	Publish func(ctx context.Context) error
	// Failed is called with the result of each write, which is nil after a success.
	Failed func(error)
	// Answered is called for each probe of another pod that is answered, and Refused for each packet that is dropped. They must not
	// block.
	Answered, Refused func()
}

// Member is one pod of a gateway. Its methods may be called concurrently.
type Member struct {
	options Options
	socket  *ipv4.PacketConn
	link    int

	mutex    sync.Mutex
	election Election
	keys     keys
	// ready is true if the pod can carry packets, active while it does so, and leaving when it is about to end.
	ready, active, leaving bool
	// peer is the endpoint of the peer. It comes from this pod's tunnel while this pod is active, and from the answers
	// of the active pod otherwise.
	peer netip.AddrPort
	// probed is the time of the last probe by another pod.
	probed time.Time
}

// Open opens the socket of a pod.
func Open(o Options) (*Member, error) {
	link, err := findLink(o.Address)
	if err != nil {
		return nil, err
	}
	socket, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(o.Address, Port)))
	if err != nil {
		return nil, fmt.Errorf("opening the port for probes, %w", err)
	}
	m := &Member{options: o, socket: ipv4.NewPacketConn(socket), link: link, election: Election{Own: o.Address}}
	if err := m.socket.SetControlMessage(ipv4.FlagInterface, true); err != nil {
		_ = m.socket.Close()
		return nil, fmt.Errorf("reading the link of probes, %w", err)
	}
	return m, nil
}

// findLink returns the index of the link with an address.
func findLink(address netip.Addr) (int, error) {
	links, err := net.Interfaces()
	if err != nil {
		return 0, fmt.Errorf("listing the links, %w", err)
	}
	for _, link := range links {
		addresses, err := link.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && (p.Addr() == address || p.Contains(address) && address.IsLoopback()) {
				return link.Index, nil
			}
		}
	}
	return 0, fmt.Errorf("no link has the address %s", address)
}

// Run takes part in the election until ctx is done.
func (m *Member) Run(ctx context.Context) error {
	defer m.socket.Close()
	defer context.AfterFunc(ctx, func() { _ = m.socket.Close() })()
	failed := make(chan error, 1)
	go func() { failed <- m.receive(ctx) }()
	timer := time.NewTicker(probeInterval)
	defer timer.Stop()
	for {
		m.act(ctx)
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-timer.C:
		}
	}
}

// act performs the next step of the election. A write delays the next probe, but not the answers to other pods.
func (m *Member) act(ctx context.Context) {
	v := m.options.View()
	m.mutex.Lock()
	step := m.election.Next(v, m.ready && !m.leaving && m.keys.current != nil, time.Now())
	m.mutex.Unlock()
	switch step.Action {
	case Wait:
	case Probe:
		m.probe(step.Target)
	case Claim:
		won, err := m.options.Claim(ctx, v, step)
		m.mutex.Lock()
		m.election.Attempted(time.Now())
		if won {
			m.election.Won(step.Reason, v.Version, time.Now())
		}
		m.mutex.Unlock()
		m.options.Failed(err)
	case Publish:
		err := m.options.Publish(ctx)
		m.mutex.Lock()
		m.election.Attempted(time.Now())
		m.mutex.Unlock()
		m.options.Failed(err)
	}
}

func (m *Member) probe(target netip.Addr) {
	p := packet{kind: probeKind}
	_, _ = rand.Read(p.nonce[:]) // never fails
	m.mutex.Lock()
	m.election.Sent(p.nonce)
	data := p.encode(m.keys.next(target, time.Now()), target)
	m.mutex.Unlock()
	// The error is ignored: for the election, a probe that cannot be sent is an unanswered probe.
	_, _ = m.socket.WriteTo(data, nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(target, Port)))
}

// receive answers probes, and passes answers on to the election. It drops everything else.
func (m *Member) receive(ctx context.Context) error {
	buffer := make([]byte, packetSize+1)
	for {
		n, control, source, err := m.socket.ReadFrom(buffer)
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			// After an error of one call, for example because the link is down, the socket can still be used.
			select {
			case <-ctx.Done():
			case <-time.After(probeInterval):
			}
			continue
		}
		from, ok := source.(*net.UDPAddr)
		if !ok || control == nil || control.IfIndex != m.link || !m.handle(buffer[:n], from) {
			m.options.Refused()
		}
	}
}

// handle reports whether a datagram was a probe or an expected answer.
func (m *Member) handle(data []byte, from *net.UDPAddr) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.keys.current == nil || len(data) < 2 {
		return false
	}
	if data[1] == answerKind {
		p, key, ok := m.keys.decode(m.election.target, data, time.Now())
		if !ok || !m.election.Answered(p.nonce, p.flags&activeFlag != 0, p.flags&leavingFlag != 0) {
			return false
		}
		m.keys.confirm(m.election.target, key)
		if p.peer.IsValid() && !m.active {
			m.peer = p.peer
		}
		return true
	}
	p, key, ok := m.keys.decode(m.options.Address, data, time.Now())
	if !ok || p.kind != probeKind {
		return false
	}
	m.probed = time.Now()
	answer := packet{kind: answerKind, nonce: p.nonce}
	if m.active {
		answer.flags |= activeFlag
		answer.peer = m.peer
	}
	if m.leaving {
		answer.flags |= leavingFlag
	}
	_, _ = m.socket.WriteTo(answer.encode(key, m.options.Address), nil, from)
	m.options.Answered()
	return true
}

// SetPrivateKey derives the key of probes from the private key of the gateway. The key before it is accepted for a while. Without a
// key, the pod takes no part in the election.
func (m *Member) SetPrivateKey(private []byte) {
	if len(private) == 0 {
		return
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.keys.replace(deriveKey(private), time.Now())
}

// SetActive records that the pod can carry packets, and whether it does.
func (m *Member) SetActive(active bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.ready, m.active = true, active
}

// SetPeer records the endpoint of the peer in the tunnel of this pod.
func (m *Member) SetPeer(peer netip.AddrPort) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.peer = peer
}

// Peer returns the last endpoint of the peer that this pod knows. It is not valid if there is none.
func (m *Member) Peer() netip.AddrPort {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.peer
}

// Leave lets another pod take over. It reports whether this can be expected, because this pod is active and another pod
// has probed it within the last second.
func (m *Member) Leave() bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.leaving = true
	return m.active && time.Since(m.probed) < missedProbes*probeInterval
}
