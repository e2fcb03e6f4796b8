// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodeleg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
)

// Reached is the result of a check.
type Reached struct {
	// Total is the number of nodes or gateways, and Missing are the sorted names of those that are not reached.
	Total   int
	Missing []string
}

func (r Reached) equal(other Reached) bool {
	return r.Total == other.Total && slices.Equal(r.Missing, other.Missing)
}

// Responder answers the requests of nodes in the pod of a gateway. Its methods may be called concurrently.
type Responder struct {
	link   string
	socket *ipv4.PacketConn
	report func(Reached)

	mutex sync.Mutex
	nodes contacts
	// active is true while this pod carries packets. Nodes send requests only to the active pod.
	active bool
}

// OpenResponder opens the socket at the address of the pod. Only packets that arrive on the link are answered, and the
// answers are sent on the link. report is called when the result changes, and must not block.
func OpenResponder(address netip.AddrPort, link string, report func(Reached)) (*Responder, error) {
	socket, err := listen(address)
	if err != nil {
		return nil, err
	}
	return &Responder{link: link, socket: socket, report: report, nodes: contacts{grace: newNodeGrace}}, nil
}

// listen opens a socket that knows the link of each packet.
func listen(address netip.AddrPort) (*ipv4.PacketConn, error) {
	connection, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(address))
	if err != nil {
		return nil, fmt.Errorf("opening the port for the requests of nodes, %w", err)
	}
	socket := ipv4.NewPacketConn(connection)
	if err := socket.SetTOS(TypeOfService); err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("setting the type of service of requests, %w", err)
	}
	if err := socket.SetControlMessage(ipv4.FlagInterface, true); err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("reading the link of requests, %w", err)
	}
	return socket, nil
}

// SetNodes sets the nodes that are expected to send requests, and whether this pod is active. A pod that becomes active
// starts anew, because it received no requests before.
func (r *Responder) SetNodes(nodes []End, active bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if active && !r.active {
		r.nodes.set(nil, time.Now())
	}
	r.active = active
	r.nodes.set(nodes, time.Now())
}

// Run answers requests until ctx is done.
func (r *Responder) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = r.socket.Close() })()
	go receive(ctx, r.socket, r.link, func(data []byte, link int, from netip.AddrPort) {
		r.answer(data, link, from)
	})
	watch(ctx, r.check, r.report)
}

func (r *Responder) answer(data []byte, link int, from netip.AddrPort) {
	request, ok := decode(data, requestKind)
	if !ok {
		return
	}
	r.mutex.Lock()
	token, ok := r.nodes.requested(from.Addr(), request.token, time.Now())
	ok = ok && r.active
	r.mutex.Unlock()
	if ok {
		// A node without an answer sends another request.
		_, _ = r.socket.WriteTo(packet{answerKind, request.id, token}.encode(), &ipv4.ControlMessage{IfIndex: link}, net.UDPAddrFromAddrPort(from))
	}
}

// check returns the present result. A pod on standby has no nodes.
func (r *Responder) check(now time.Time) Reached {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	missing := r.nodes.missing(now)
	if !r.active {
		return Reached{}
	}
	return Reached{len(r.nodes.known), missing}
}

// watch reports the result of each check that differs from the one before, until ctx is done.
func watch(ctx context.Context, check func(time.Time) Reached, report func(Reached)) {
	timer := time.NewTicker(requestInterval)
	defer timer.Stop()
	for last := (Reached{}); ; {
		if next := check(time.Now()); !next.equal(last) {
			last = next
			report(next)
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// receive passes on the datagrams that arrive on a link, until the socket is closed. The link may be created again
// meanwhile.
func receive(ctx context.Context, socket *ipv4.PacketConn, link string, handle func(data []byte, link int, from netip.AddrPort)) {
	buffer := make([]byte, packetSize+1)
	for {
		n, control, source, err := socket.ReadFrom(buffer)
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// An error of one call, such as a link that is down, does not end the socket.
			select {
			case <-ctx.Done():
			case <-time.After(requestInterval):
			}
			continue
		}
		from, isUDP := source.(*net.UDPAddr)
		if !isUDP || control == nil || n != packetSize {
			continue
		}
		if expected, err := net.InterfaceByName(link); err != nil || expected.Index != control.IfIndex {
			continue
		}
		address := from.AddrPort()
		handle(buffer[:n], control.IfIndex, netip.AddrPortFrom(address.Addr().Unmap(), address.Port()))
	}
}
