// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/refract-project/refract/gateway/check"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/gateway/netstate"
	"github.com/refract-project/refract/gateway/nodeleg"
	"github.com/refract-project/refract/gateway/tunnel"
)

// tunnelCheckInterval is how often the WireGuard device is compared with its configuration, because WireGuard sends no
// notifications. With a longer interval, it takes longer until a peer that another process has removed is added again.
const tunnelCheckInterval = 5 * time.Second

const (
	// confirmTimeout limits one request to the API server about the role of this pod. Meanwhile, the pod stays active, so that two pods
	// may be active for longer with a longer timeout.
	confirmTimeout = 2 * time.Second
	// minConfirmInterval is the pause between two such requests. With a shorter pause, a peer that claims to know a later pod causes more
	// requests.
	minConfirmInterval = 5 * time.Second
	// maxTermSkew is how far a term may be ahead of the clock of this host. Later terms are ignored, because the next term of this pod
	// would have to be later still.
	maxTermSkew = time.Hour
)

const (
	// keyCheckInterval is how often the handshakes are compared while the peer is likely to replace its key. With a longer interval,
	// packets from the peer are dropped for longer after it has replaced its key.
	keyCheckInterval = 50 * time.Millisecond
	// slowKeyCheckInterval is how often they are compared afterwards, as long as the peer may use several keys. A shorter interval lets
	// peers that announce two keys for ever cost more.
	slowKeyCheckInterval = time.Second
	// keyChangePeriod is how long after the peer has announced another key it is likely to replace its key.
	keyChangePeriod = 2 * time.Minute
)

// Report describes a change of the kernel's configuration, or the reason why there was none.
type Report struct {
	// Compiled is true if new objects were compiled. Refused is the reason why some of them were refused. In this case,
	// a gateway keeps its previous configuration. A node keeps the previous configuration of the refused peers, and
	// gets the new configuration of all others (see desired.Refusal).
	Compiled bool
	Refused  error
	// Network is the result of comparing links, routes and rules. It is nil if they were not compared.
	Network *netstate.Outcome
	// TunnelWrites is the number of requests that changed the WireGuard device. TunnelError is the error of the last
	// request.
	TunnelWrites int
	TunnelError  error
	// Implementation is the WireGuard implementation. It is set after the device was opened.
	Implementation tunnel.Implementation
	// Active is set when this pod starts to carry the packets of the peering, or becomes a standby.
	Active *bool
	// Connection is set when the connection to the peer is established or lost.
	Connection *Connection
	// Latency is the round-trip time of a ping to the connected peer. It is 0 in reports about anything else.
	Latency time.Duration
	// PeerEndpoint is set when packets to the peer go to a different address than before.
	PeerEndpoint netip.AddrPort
	// PathMTU is set after each measurement of the path to the peer.
	PathMTU *PathMTU
	// AnnouncedKeys is set when the peer announces other public keys of its own than before, and AcceptedKeys when the peer accepts
	// other public keys of this gateway than before.
	AnnouncedKeys, AcceptedKeys [][]byte
	// Leg is set when other nodes reach the gateway through VXLAN than before, or when other gateways answer the node.
	Leg *nodeleg.Reached
}

// Connection is the state of the connection to the peer's gateway through the tunnel.
type Connection struct {
	Connected bool
	// Latency is the round-trip time.
	Latency time.Duration
}

// PathMTU is the result of a measurement of the path to the peer.
type PathMTU struct {
	// Tunnel is the MTU of the tunnel. Path is the size of the largest packets that reach the peer, at most Tunnel.
	Tunnel, Path int
	// Changed is true if packets are limited to a different size than before.
	Changed bool
}

// Options are the options of RunGateway.
type Options struct {
	Implementation tunnel.Implementation
	// LogError receives the errors of wireguard-go. It may be nil.
	LogError func(format string, values ...any)
	// LastPeerEndpoint returns the PeerEndpoint of the pod that was active before. A server that becomes active starts
	// a handshake with it, because the client would otherwise continue the session with the other pod until it misses
	// answers. The function may be nil.
	LastPeerEndpoint func() netip.AddrPort
	// ConfirmActive asks the API server whether this pod is still the active one. It is called when the peer knows a later active pod of
	// this gateway. If the answer is no, or the API server cannot be reached, the pod behaves as a standby until it is confirmed.
	// The function may be nil, if the gateway has only one pod.
	ConfirmActive func(ctx context.Context) bool
	// Report receives each change. It must not block, and is called from several goroutines.
	Report func(Report)
}

// RunGateway applies the Peering that was received last to the gateway's pod. When ctx is done, the kernel's
// configuration remains, so that the next process can continue with it. If WireGuard runs in userspace, however,
// packets pass only while a process is running.
func RunGateway(ctx context.Context, peerings <-chan desired.Peering, o Options) error {
	applied := make(chan error, 1)
	report := func(r Report) {
		if r.Network != nil && !r.Network.Repair {
			applied <- r.Network.Err // compile waits for it
		}
		o.Report(r)
	}
	return keep(ctx, desired.GatewayScope, report, func(ctx context.Context, present netstate.State, states chan<- netstate.State) error {
		g := gatewayLoop{options: o, present: present, states: states, applied: applied,
			reconnect: make(chan struct{}, 1), connected: make(chan struct{}, 1),
			failed: make(chan error, 1), remeasure: make(chan struct{}, 1), measured: make(chan int, 1), pathMTU: desired.ReadPathMTU(present),
			superseded: make(chan int64, 1), confirmed: make(chan confirmation, 1),
			keyTimer: time.NewTicker(keyCheckInterval)}
		g.keyTimer.Stop()
		g.ownKeys.Store(&[][]byte{})
		g.peerKeys.Store(&[][]byte{})
		defer g.keyTimer.Stop()
		defer g.close()
		defer g.stopPings(nil)
		defer g.background.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		timer := time.NewTicker(tunnelCheckInterval)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case p := <-peerings:
				if err := errors.Join(g.answerNodes(ctx, p), g.compile(ctx, p)); err != nil {
					return err
				}
			case term := <-g.superseded:
				g.confirm(ctx, term)
			case c := <-g.confirmed:
				g.applyConfirmation(ctx, c)
			case <-timer.C:
				if g.suspended {
					g.confirm(ctx, g.laterTerm)
				}
				if g.isUnapplied {
					if err := g.compile(ctx, g.peering); err != nil {
						return err
					}
				}
				g.applyTunnel()
				g.reportPeerEndpoint()
			case <-g.keyTimer.C:
				g.applyTunnel()
			case <-g.connected:
				g.reportPeerEndpoint()
			case <-g.reconnect:
				if err := g.device.Reconnect(g.tunnelConfig()); err != nil {
					g.options.Report(Report{TunnelError: err})
				}
			case size := <-g.measured:
				if err := g.limitPackets(ctx, size); err != nil {
					return err
				}
			case err := <-g.failed:
				return err
			}
		}
	})
}

// gatewayLoop is the state of RunGateway.
type gatewayLoop struct {
	options Options
	states  chan<- netstate.State
	// applied receives the error of each State that was sent to states, nil if it was applied. isUnapplied is true if the last
	// State was not.
	applied     <-chan error
	isUnapplied bool
	device      *tunnel.Device
	// present is the kernel's configuration at the start.
	present netstate.State
	current desired.Gateway
	// peering contains the objects that were received last.
	peering desired.Peering
	// active reports whether this pod carries the packets of the peering. It is nil until the first objects arrive.
	active *bool
	// pings is nil while no pings are sent.
	pings *pings
	// responder answers the requests of nodes. It is nil until the address of the pod is known.
	responder  *nodeleg.Responder
	background sync.WaitGroup
	// reconnect receives a request when the peer is lost, connected when it answers, and failed the error of the pings.
	reconnect, connected chan struct{}
	failed               chan error
	// peerEndpoint is the endpoint that was reported last.
	peerEndpoint netip.AddrPort
	// tunnelMTU is the MTU of the tunnel. pathMTU is the size to which packets are limited, 0 if it is that of the tunnel.
	tunnelMTU atomic.Int64
	pathMTU   int
	// remeasure receives a request to measure the path to the peer, and measured the result.
	remeasure chan struct{}
	measured  chan int
	// keyTimer runs while the peer may use several keys, at the interval keyInterval. It is 0 while the timer does not run.
	// keysChanged is the time when the keys of the peer changed.
	keyTimer    *time.Ticker
	keyInterval time.Duration
	keysChanged time.Time
	// term is the term of this pod, the time in milliseconds when it became active. A pod that the API server confirms as active takes a
	// later one than the peer knows.
	term atomic.Int64
	// laterTerm is the last term that the peer knew of another pod.
	laterTerm int64
	// suspended is true while this pod behaves as a standby, because the peer knows a later active pod and the API server has not confirmed
	// that this pod is active.
	suspended bool
	// superseded receives the later term that the peer knows, and confirmed the answer of the API server. confirming is the time of the
	// last request.
	superseded chan int64
	confirmed  chan confirmation
	confirming time.Time
	// ownKeys contains the public keys that are announced to the peer, and peerKeys those that the tunnel accepts from it.
	ownKeys, peerKeys atomic.Pointer[[][]byte]
}

// answerNodes answers the requests of the nodes, also while the objects of the peer are refused.
func (g *gatewayLoop) answerNodes(ctx context.Context, p desired.Peering) (err error) {
	if g.responder == nil && p.PodIP.IsValid() {
		g.responder, err = nodeleg.OpenResponder(netip.AddrPortFrom(p.PodIP, desired.EchoPort), desired.VXLANLink, func(r nodeleg.Reached) {
			g.options.Report(Report{Leg: &r})
		})
		if err != nil {
			return err
		}
		g.background.Go(func() { g.responder.Run(ctx) })
	}
	if g.responder == nil {
		return nil
	}
	var nodes []nodeleg.End
	for _, n := range p.Nodes {
		nodes = append(nodes, nodeleg.End{Name: n.Name, Address: n.IP})
	}
	g.responder.SetNodes(nodes, !p.Standby)
	return nil
}

func (g *gatewayLoop) compile(ctx context.Context, p desired.Peering) error {
	g.peering = p
	p.PathMTU = g.pathMTU
	compiled, err := desired.CompileGateway(p)
	g.options.Report(Report{Compiled: true, Refused: err})
	if err != nil {
		return g.resume(ctx, p)
	}
	if err := g.open(compiled); err != nil {
		return err
	}
	// The peer is added only after the filter and the addresses were applied, so that no packet passes a gateway without
	// rules, and the peer does not answer pings while packets are not translated.
	select {
	case g.states <- compiled.State:
	case <-ctx.Done():
		return nil
	}
	select {
	case err = <-g.applied:
	case <-ctx.Done():
		return nil
	}
	if g.isUnapplied = err != nil; g.isUnapplied {
		const text = "the gateway does not connect, because its links, routes or rules cannot be written: %w. " +
			"Check whether the kernel of the node has nftables with NAT (nf_tables, nft_nat) and VXLAN"
		g.options.Report(Report{Compiled: true, Refused: fmt.Errorf(text, err)})
		if g.isConfigured() { // with the rules of earlier objects
			g.followRole(ctx, p)
		}
		return nil
	}
	g.connect(ctx, p, compiled)
	return nil
}

// resume continues the tunnel of an earlier process if the objects are refused. Links, routes and rules still exist,
// but WireGuard in userspace ended with its process. Another pod can take over even while the objects are refused.
func (g *gatewayLoop) resume(ctx context.Context, p desired.Peering) error {
	if g.device != nil {
		if g.isConfigured() {
			g.followRole(ctx, p)
		}
		return nil
	}
	resumed, err := desired.ResumeTunnel(p, g.present)
	if err != nil {
		return nil // CompileGateway has already reported this error, or there was no tunnel
	}
	if err := g.open(resumed); err != nil {
		return err
	}
	g.connect(ctx, p, resumed)
	return nil
}

func (g *gatewayLoop) open(compiled desired.Gateway) (err error) {
	if g.device != nil {
		return nil
	}
	g.device, err = tunnel.Open(tunnel.Options{Name: desired.TunnelLink, MTU: compiled.MTU, Implementation: g.options.Implementation,
		LogError: g.options.LogError})
	if err != nil {
		return fmt.Errorf("opening the tunnel, %w", err)
	}
	g.options.Report(Report{Implementation: g.device.Implementation()})
	return nil
}

// isConfigured reports whether links, routes and rules of this process or of an earlier one are in the kernel, so that the
// tunnel may be used.
func (g *gatewayLoop) isConfigured() bool { return g.current.Ping.IsValid() }

func (g *gatewayLoop) connect(ctx context.Context, p desired.Peering, compiled desired.Gateway) {
	g.current = compiled
	if before := g.tunnelMTU.Swap(int64(compiled.MTU)); before != int64(compiled.MTU) {
		notify(g.remeasure)
	}
	g.followRole(ctx, p)
}

// limitPackets limits packets to the peer to a size, unless it is that of the tunnel.
func (g *gatewayLoop) limitPackets(ctx context.Context, size int) error {
	result := PathMTU{Tunnel: g.current.MTU, Path: min(size, g.current.MTU)}
	limit := result.Path
	if limit == result.Tunnel {
		limit = 0
	}
	result.Changed = limit != g.pathMTU
	g.pathMTU = limit
	g.options.Report(Report{PathMTU: &result})
	if !result.Changed {
		return nil
	}
	return g.compile(ctx, g.peering)
}

// confirmation is the answer of the API server to a pod that may have been replaced by one with a later term.
type confirmation struct {
	term     int64
	isActive bool
}

// confirm asks the API server whether this pod is active, because the peer knows a pod with a later term.
func (g *gatewayLoop) confirm(ctx context.Context, term int64) {
	isPossible := time.UnixMilli(term).Before(time.Now().Add(maxTermSkew))
	if !isPossible || g.peering.Standby || time.Since(g.confirming) < minConfirmInterval {
		return
	}
	g.confirming, g.laterTerm = time.Now(), term
	g.background.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
		defer cancel()
		g.confirmed <- confirmation{term, g.options.ConfirmActive(ctx)} // a request takes less time than the pause before the next one
	})
}

// applyConfirmation takes a later term if this pod is active, and otherwise suspends it.
func (g *gatewayLoop) applyConfirmation(ctx context.Context, c confirmation) {
	if c.isActive {
		g.startTerm(c.term + 1)
	}
	if g.suspended = !c.isActive; g.isConfigured() {
		g.followRole(ctx, g.peering)
	}
}

// startTerm takes the next term of this pod.
func (g *gatewayLoop) startTerm(minimum int64) { g.term.Store(max(time.Now().UnixMilli(), minimum)) }

// isStandby reports whether another pod carries the packets, or this pod may have been replaced.
func (g *gatewayLoop) isStandby(p desired.Peering) bool {
	g.suspended = g.suspended && !p.Standby
	return p.Standby || g.suspended
}

// followRole adds the peer to the tunnel if this pod is active, and removes it if the pod is a standby. Two pods with
// the same key would take the peer's session from each other. Only the active pod pings the peer.
func (g *gatewayLoop) followRole(ctx context.Context, p desired.Peering) {
	active := !g.isStandby(p)
	isChanged := g.active == nil || *g.active != active
	wasStandby := g.active != nil && !*g.active
	if isChanged && !active {
		g.stopPings(check.ErrMoved)
	}
	g.active = &active
	config := g.tunnelConfig()
	if isChanged && active && p.Server != nil && g.options.LastPeerEndpoint != nil {
		config = dialPeer(config, g.options.LastPeerEndpoint())
	}
	g.ownKeys.Store(&p.OwnPublicKeys)
	if wasStandby && active {
		g.forgetConnections()
	}
	g.applyConfig(config)
	if !isChanged {
		return
	}
	g.peerEndpoint = netip.AddrPort{}
	g.options.Report(Report{Active: &active})
	if active {
		g.startTerm(g.term.Load() + 1)
		g.startPings(ctx, p)
	}
}

// forgetConnections deletes the connections that the kernel has tracked while this pod was active before. It does not know what has passed
// through another pod since then: it would take the packets of TCP connections for invalid, not translate them, and these connections
// would hang. The kernel tracks a connection again with the next packet, and translates it to the same addresses.
func (g *gatewayLoop) forgetConnections() {
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		g.options.Report(Report{TunnelError: fmt.Errorf("deleting the tracked connections of an earlier time as the active pod, %w", err)})
	}
}

// acceptKeys records the keys of the configuration, after it was applied.
func (g *gatewayLoop) acceptKeys(config tunnel.Config) {
	var keys [][]byte
	for _, peer := range config.Peers {
		keys = append(keys, peer.PublicKey[:])
		for _, key := range peer.OtherKeys {
			keys = append(keys, key[:])
		}
	}
	now := time.Now()
	if before := g.peerKeys.Swap(&keys); !slices.EqualFunc(*before, keys, bytes.Equal) {
		g.keysChanged = now
	}
	interval := time.Duration(0)
	switch {
	case len(keys) <= len(config.Peers):
	case now.Sub(g.keysChanged) < keyChangePeriod:
		interval = keyCheckInterval
	default:
		interval = slowKeyCheckInterval
	}
	if interval == g.keyInterval {
		return
	}
	g.keyInterval = interval
	if interval == 0 {
		g.keyTimer.Stop()
		return
	}
	g.keyTimer.Reset(interval)
}

// tunnelConfig returns the configuration of the tunnel for the current role of this pod.
func (g *gatewayLoop) tunnelConfig() tunnel.Config {
	config := g.current.Tunnel
	if g.active != nil && !*g.active {
		config.Peers = nil
	}
	return config
}

// dialPeer returns the configuration of a server that starts a handshake with the endpoint. The ping that follows triggers it.
func dialPeer(config tunnel.Config, endpoint netip.AddrPort) tunnel.Config {
	config.Peers = slices.Clone(config.Peers)
	for i := range config.Peers {
		config.Peers[i].Endpoint = endpoint
	}
	return config
}

// reportPeerEndpoint reports where the packets to the peer go, if that has changed.
func (g *gatewayLoop) reportPeerEndpoint() {
	if g.device == nil || g.active == nil || !*g.active {
		return
	}
	endpoint, err := g.device.PeerEndpoint()
	if err != nil || !endpoint.IsValid() {
		return
	}
	if endpoint != g.peerEndpoint {
		g.peerEndpoint = endpoint
		g.options.Report(Report{PeerEndpoint: endpoint})
		notify(g.remeasure)
	}
}

// pings are the pings to the peer while this pod is active.
type pings struct {
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

func (g *gatewayLoop) startPings(ctx context.Context, p desired.Peering) {
	ctx, cancel := context.WithCancelCause(ctx)
	running := &pings{cancel: cancel, ended: make(chan struct{})}
	g.pings = running
	go func() {
		defer close(running.ended)
		if err := check.Run(ctx, g.pingOptions(p)); err != nil {
			// The first error ends the gateway, and later errors are not received.
			select {
			case g.failed <- err:
			default:
			}
		}
	}()
}

// stopPings stops the pings, and returns when their port is closed. check.Run describes the effect of the cause.
func (g *gatewayLoop) stopPings(cause error) {
	if g.pings == nil {
		return
	}
	g.pings.cancel(cause)
	<-g.pings.ended
	g.pings = nil
}

// pingOptions returns the options of the pings. If the peer is lost, a client reconnects. A server cannot, because it
// knows only the endpoint that the client used last.
func (g *gatewayLoop) pingOptions(p desired.Peering) check.Options {
	return check.Options{
		ClusterID: p.ClusterID, RemoteClusterID: p.RemoteClusterID, Port: desired.PingPort, Peer: g.current.Ping,
		Changed: func(connected bool, latency time.Duration) {
			g.options.Report(Report{Connection: &Connection{connected, latency}})
			if connected {
				notify(g.connected)
			}
		},
		Answered: func(latency time.Duration) { g.options.Report(Report{Latency: latency}) },
		MTU:      func() int { return int(g.tunnelMTU.Load()) }, Remeasure: g.remeasure,
		PathMTU: func(size int) {
			select {
			case <-g.measured: // an earlier result
			default:
			}
			g.measured <- size // only this function sends
		},
		Reconnect: func() {
			if p.Client == nil {
				return
			}
			notify(g.reconnect)
		},
		Keys: g.keyExchange(), Terms: g.terms(),
	}
}

// terms returns nil if the gateway has only one pod.
func (g *gatewayLoop) terms() *check.Terms {
	if g.options.ConfirmActive == nil {
		return nil
	}
	return &check.Terms{Own: g.term.Load, Superseded: func(term int64) {
		select {
		case g.superseded <- term:
		default:
		}
	}}
}

// keyExchange returns the exchange of keys for one run of the pings.
func (g *gatewayLoop) keyExchange() *check.KeyExchange {
	// Each of them belongs to one goroutine of the pings.
	var announced, accepted [][]byte
	return &check.KeyExchange{
		Own:    func() [][]byte { return *g.ownKeys.Load() },
		OfPeer: func() [][]byte { return *g.peerKeys.Load() },
		Announced: func(keys [][]byte) {
			if !slices.EqualFunc(keys, announced, bytes.Equal) {
				announced = keys
				g.options.Report(Report{AnnouncedKeys: keys})
			}
		},
		Accepted: func(keys [][]byte) {
			if !slices.EqualFunc(keys, accepted, bytes.Equal) {
				accepted = keys
				g.options.Report(Report{AcceptedKeys: keys})
			}
		},
	}
}

// notify sends a value to a channel with a buffer for one, without blocking.
func notify(channel chan<- struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}

func (g *gatewayLoop) applyTunnel() { g.applyConfig(g.tunnelConfig()) }

func (g *gatewayLoop) applyConfig(config tunnel.Config) {
	if g.device == nil || !g.isConfigured() {
		return
	}
	writes, err := g.device.Apply(config)
	if writes > 0 || err != nil {
		g.options.Report(Report{TunnelWrites: writes, TunnelError: err})
	}
	if err == nil {
		g.acceptKeys(config)
	}
}

func (g *gatewayLoop) close() {
	if g.device != nil {
		g.device.Close()
	}
}

// RunAgent applies the Host that was received last to a node. The first Host must contain all peers, because the
// configuration of all other peers is removed. A peer whose objects are incomplete keeps its last configuration, even
// after a restart. When ctx is done, the configuration remains.
func RunAgent(ctx context.Context, hosts <-chan desired.Host, report func(Report)) error {
	return keep(ctx, desired.NodeScope, report, func(ctx context.Context, present netstate.State, states chan<- netstate.State) error {
		compiler := desired.NewNodeCompiler(present)
		prober, err := nodeleg.OpenProber(desired.EchoPort, desired.VXLANLink, func(r nodeleg.Reached) { report(Report{Leg: &r}) })
		if err != nil {
			return err
		}
		var background sync.WaitGroup
		defer background.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		background.Go(func() { prober.Run(ctx) })
		for {
			select {
			case <-ctx.Done():
				return nil
			case h := <-hosts:
				state, err := compiler.Compile(h)
				report(Report{Compiled: true, Refused: err})
				select {
				case states <- state:
				case <-ctx.Done():
				}
				prober.SetGateways(h.IP, compiler.Gateways())
			}
		}
	})
}

// keep applies the states that the source sends, until ctx is done or an error occurs. The source first receives the
// kernel's present configuration.
func keep(
	ctx context.Context, scope netstate.Scope, report func(Report),
	source func(ctx context.Context, present netstate.State, states chan<- netstate.State) error,
) error {
	applier, err := netstate.NewApplier(scope)
	if err != nil {
		return err
	}
	defer applier.Close()
	present, err := applier.Read()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	states, ended := make(chan netstate.State), make(chan error, 1)
	go func() {
		defer cancel()
		ended <- source(ctx, present, states)
	}()
	err = applier.Keep(ctx, states, func(o netstate.Outcome) { report(Report{Network: &o}) })
	cancel()
	if failed := <-ended; failed != nil {
		return failed
	}
	return err
}
