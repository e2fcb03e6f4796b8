// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/internal/cmdutil"
)

// runAgent runs the agent until ctx is done.
func runAgent(ctx context.Context, o *agentOptions) error {
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	kinds := nodeKinds()
	for _, kind := range []client.Object{&networking.Configuration{}, &networking.GatewayServer{}, &networking.GatewayClient{}} {
		kinds[kind] = cacheAll
	}
	if len(o.homeAddressesOf) > 0 {
		maps.Copy(kinds, homeKinds(o.node))
	}
	objects, err := newObjects(config, kinds)
	if err != nil {
		return err
	}
	a := &agent{options: o, reader: objects.cache, reporter: newReporter()}
	slog.Info("Starting", "version", cmdutil.Version(), "node", o.node)
	group, ctx := errgroup.WithContext(ctx)
	if err := o.serveOperations(ctx, group, a.reporter.registry, objects.synced); err != nil {
		return err
	}
	hosts := make(chan desired.Host)
	group.Go(func() error { return objects.run(ctx) })
	group.Go(func() error {
		return followInputs(ctx, objects, nil, a.buildHost, func(err error) { a.reporter.refuse("host", err) }, hosts)
	})
	group.Go(func() error { return gateway.RunAgent(ctx, hosts, a.reporter.report) })
	return group.Wait()
}

// agent converts objects into a desired.Host.
type agent struct {
	options  *agentOptions
	reader   client.Reader
	reporter *reporter
	nodes    nodes
}

// buildHost builds a desired.Host from the caches. It returns an error while the addresses of this node are unknown.
func (a *agent) buildHost(ctx context.Context) (desired.Host, error) {
	var list corev1.NodeList
	var ips ipam.IPList
	if err := errors.Join(a.reader.List(ctx, &list), a.reader.List(ctx, &ips)); err != nil {
		return desired.Host{}, err
	}
	ofNodes, mappings, err := splitIPs(a.options.installation, ips.Items)
	a.reporter.refuse("ips", err)
	translated, err := a.nodes.translate(list.Items, ofNodes)
	a.reporter.refuse("nodes", err)
	h := desired.Host{Name: a.options.node}
	for _, m := range mappings {
		h.Targets = append(h.Targets, m.Target)
		if m.Masquerade {
			h.Masqueraded = append(h.Masqueraded, m.Target)
		}
	}
	h.Nodes = listSources(list.Items, translated)
	for _, n := range translated {
		if n.Name == h.Name {
			h.IP, h.External = n.IP, n.External
		}
	}
	if !h.IP.IsValid() {
		return h, fmt.Errorf("waiting for an InternalIP of Node %s", h.Name)
	}
	if h.Peers, err = a.listPeers(ctx); err != nil {
		return h, err
	}
	if h.Home, err = a.buildHome(ctx); err != nil {
		return h, err
	}
	h.MTU = a.options.mtu
	if h.MTU == 0 {
		h.MTU, err = findMTU(h.IP, h.Peers)
	}
	if err == nil {
		a.reporter.refuse("host", nil)
	}
	return h, err
}

// peerKey identifies a peer: its tenant namespace, and its cluster ID.
type peerKey struct{ namespace, id string }

// listPeers returns the peers with a gateway of this installation. For other peers, Liqo runs the gateway and connects
// the nodes to it.
func (a *agent) listPeers(ctx context.Context) ([]desired.Peer, error) {
	var servers networking.GatewayServerList
	var clients networking.GatewayClientList
	var configurations networking.ConfigurationList
	if err := errors.Join(a.reader.List(ctx, &servers), a.reader.List(ctx, &clients), a.reader.List(ctx, &configurations)); err != nil {
		return nil, err
	}
	keyOf := func(object client.Object) peerKey {
		return peerKey{object.GetNamespace(), object.GetLabels()[wire.RemoteClusterIDLabel]}
	}
	byPeer := map[peerKey][]desired.Peer{}
	for i := range servers.Items {
		s := stripMetadata(&servers.Items[i])
		if s.Spec.ServerTemplateRef.Namespace == a.options.installation {
			byPeer[keyOf(s)] = append(byPeer[keyOf(s)], desired.Peer{Server: s})
		}
	}
	for i := range clients.Items {
		c := stripMetadata(&clients.Items[i])
		if c.Spec.ClientTemplateRef.Namespace == a.options.installation {
			byPeer[keyOf(c)] = append(byPeer[keyOf(c)], desired.Peer{Client: c})
		}
	}
	for key, peers := range byPeer {
		byPeer[key] = preferRunning(peers)
	}
	ranges := map[peerKey][]networking.Configuration{}
	for i := range configurations.Items {
		c := stripMetadata(&configurations.Items[i])
		ranges[keyOf(c)] = append(ranges[keyOf(c)], *c)
	}
	order := func(a, b peerKey) int { return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.id, b.id)) }
	var all []desired.Peer
	for _, key := range slices.SortedFunc(maps.Keys(byPeer), order) {
		configuration, problem := findOnly("Configuration", key.namespace, key.id, ranges[key])
		if _, several := findOnly("GatewayServer or GatewayClient", key.namespace, key.id, byPeer[key]); several != "" {
			problem = several
		}
		for _, p := range byPeer[key] {
			p.Configuration, p.Problem = configuration, problem
			all = append(all, p)
		}
	}
	return all, nil
}

// preferRunning returns only the gateway that the controller manager runs, if it runs exactly one of a peer's gateways. The other gateways
// wait until this one is gone. In all other cases, it returns all gateways.
func preferRunning(peers []desired.Peer) []desired.Peer {
	isRunning := func(p desired.Peer) bool {
		return p.Server != nil && p.Server.Status.ServerRef != nil || p.Client != nil && p.Client.Status.ClientRef != nil
	}
	var running []desired.Peer
	for _, p := range peers {
		if isRunning(p) {
			running = append(running, p)
		}
	}
	if len(running) == 1 {
		return running
	}
	return peers
}

// findMTU returns the smallest MTU of the links between this node and the gateways. The network plugin's link to
// another node may be a tunnel with a smaller MTU than the node's own link.
func findMTU(node netip.Addr, peers []desired.Peer) (int, error) {
	mtu, err := linkMTU(node)
	if err != nil {
		return 0, err
	}
	// All links are listed once: looking one up by its index also lists all of them.
	links, err := net.Interfaces()
	if err != nil {
		return 0, fmt.Errorf("listing the links, %w", err)
	}
	byIndex := make(map[int]net.Interface, len(links))
	for _, l := range links {
		byIndex[l.Index] = l
	}
	for _, p := range peers {
		var internal *networking.InternalGatewayEndpoint
		if p.Server != nil {
			internal = p.Server.Status.InternalEndpoint
		} else if p.Client != nil {
			internal = p.Client.Status.InternalEndpoint
		}
		if internal == nil || internal.IP == nil {
			continue
		}
		routes, err := netlink.RouteGet(net.ParseIP(string(*internal.IP)))
		if err != nil || len(routes) == 0 {
			continue // the pod's network may not be ready yet
		}
		if link, ok := byIndex[routes[0].LinkIndex]; ok && link.Flags&net.FlagLoopback == 0 {
			mtu = min(mtu, link.MTU)
		}
	}
	return mtu, nil
}

// linkMTU returns the MTU of the link with the given address.
func linkMTU(address netip.Addr) (int, error) {
	links, err := net.Interfaces()
	if err != nil {
		return 0, fmt.Errorf("listing the links, %w", err)
	}
	for _, l := range links {
		addresses, err := l.Addrs()
		if err != nil {
			continue // the link no longer exists
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == address {
				return l.MTU, nil
			}
		}
	}
	return 0, fmt.Errorf("no link has the address %s: set --mtu", address)
}
