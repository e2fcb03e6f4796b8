// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodeleg

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
)

// Prober sends the requests of a node to the active pods of all gateways. Its methods may be called concurrently.
type Prober struct {
	link   string
	port   uint16
	socket *ipv4.PacketConn
	report func(Reached)

	mutex    sync.Mutex
	own      netip.Addr
	gateways contacts
}

// OpenProber opens the socket of a node. Requests are sent on the link, to the port of the gateways. report is called
// when the result changes, and must not block.
func OpenProber(port uint16, link string, report func(Reached)) (*Prober, error) {
	socket, err := listen(netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
	if err != nil {
		return nil, err
	}
	return &Prober{link: link, port: port, socket: socket, report: report, gateways: contacts{grace: silenceTimeout}}, nil
}

// SetGateways sets the address of the node, by which gateways know it, and the active pods of the gateways.
func (p *Prober) SetGateways(own netip.Addr, gateways []End) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.own = own
	p.gateways.set(gateways, time.Now())
}

// Run sends requests until ctx is done.
func (p *Prober) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = p.socket.Close() })()
	go receive(ctx, p.socket, p.link, func(data []byte, _ int, from netip.AddrPort) {
		if answer, ok := decode(data, answerKind); ok && from.Port() == p.port {
			p.mutex.Lock()
			defer p.mutex.Unlock()
			p.gateways.answered(from.Addr(), answer, time.Now())
		}
	})
	watch(ctx, p.check, p.report)
}

// check sends a request to each gateway, and returns the result so far.
func (p *Prober) check(now time.Time) Reached {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	control := &ipv4.ControlMessage{Src: p.own.AsSlice()}
	link, err := net.InterfaceByName(p.link)
	for _, gateway := range slices.SortedFunc(maps.Keys(p.gateways.known), netip.Addr.Compare) {
		if err != nil {
			break // there is no link yet
		}
		control.IfIndex = link.Index
		// A request that cannot be sent is one without an answer.
		_, _ = p.socket.WriteTo(p.gateways.request(gateway).encode(), control, net.UDPAddrFromAddrPort(netip.AddrPortFrom(gateway, p.port)))
	}
	return Reached{len(p.gateways.known), p.gateways.missing(now)}
}
