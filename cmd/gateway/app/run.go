// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	events "k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/gateway/tunnel"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/printable"
)

// refusedReason is the reason of Events about a gateway whose objects are not applied.
const refusedReason = "PeeringRefused"

// cacheAll is the cache of all objects of a kind.
var cacheAll = cache.ByObject{}

// runGateway runs a gateway until ctx is done. If the gateway has several pods, the active pod then hands over to
// another pod before it ends.
func runGateway(ctx context.Context, o *runOptions) error {
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	if o.mtu == 0 {
		if o.mtu, err = linkMTU(netip.MustParseAddr(o.podIP)); err != nil {
			return err
		}
	}
	objects, err := newObjects(config, o.kinds())
	if err != nil {
		return err
	}
	p := &peering{options: o, reader: objects.cache, reporter: newReporter(), retry: make(chan struct{}, 1),
		endpoints: endpoints{resolve: net.DefaultResolver.LookupNetIP}, keys: keyFiles{current: o.keysDir, other: o.alternateKeysDir}}
	record, closeEvents, err := p.recordEvents(config)
	if err != nil {
		return err
	}
	defer closeEvents()
	warn := func(reason, text string) { record(corev1.EventTypeWarning, reason, text) }
	p.reporter.warn = func(text string) { warn(refusedReason, text) }
	legs := newLegReporter(record)
	writer, err := client.New(config, client.Options{Scheme: newScheme(), Mapper: newMapper()})
	if err != nil {
		return fmt.Errorf("creating a client, %w", err)
	}
	keeper, service := newConnectionKeeper(writer, o, objects.cache, p.reporter), newSliceKeeper(writer, o, objects.cache)
	keys := newKeyKeeper(writer, p)
	var elector *elector
	var lastPeerEndpoint func() netip.AddrPort
	var confirmActive func(context.Context) bool
	if o.standby {
		if elector, err = newElector(writer, o, objects, p.reporter, warn); err != nil {
			return err
		}
		lastPeerEndpoint, confirmActive = elector.member.Peer, elector.confirmActive
	}
	build := func(ctx context.Context) (desired.Peering, error) {
		keeper.requestUpdate()
		service.requestUpdate()
		input, err := p.build(ctx)
		if elector != nil && err == nil {
			elector.member.SetPrivateKey(input.PrivateKey)
		}
		return input, err
	}
	slog.Info("Starting", "version", cmdutil.Version(), "cluster", o.clusterID, "namespace", o.namespace, "name", o.name)
	stopping := ctx.Done()
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-stopping:
		}
		if elector != nil {
			elector.handOver(ctx)
		}
		stop()
		return nil
	})
	if elector != nil {
		group.Go(func() error { return elector.member.Run(ctx) })
	}
	if err := o.serveOperations(ctx, group, p.reporter.registry, objects.synced); err != nil {
		return err
	}
	peerings, connections := make(chan desired.Peering), make(chan bool, 1)
	group.Go(func() error { return objects.run(ctx) })
	group.Go(func() error {
		return followInputs(ctx, objects, p.retry, build, func(err error) { p.reporter.refuse("objects", err) }, peerings)
	})
	group.Go(func() error { return p.tryEndpoints(ctx, connections) })
	group.Go(func() error { return keeper.keepConnection(ctx, objects.synced) })
	group.Go(func() error { return legs.run(ctx) })
	group.Go(func() error { return watchKeys(ctx, []string{o.keysDir, o.alternateKeysDir}, p.retry) })
	group.Go(func() error { return keys.keepKeys(ctx, objects.synced) })
	if o.standby {
		group.Go(func() error { return service.keepSlice(ctx, objects.synced) })
	}
	group.Go(func() error {
		return gateway.RunGateway(ctx, peerings, gateway.Options{
			Implementation: tunnel.Implementation(o.implementation),
			LogError: func(format string, values ...any) {
				slog.Error("WireGuard reports an error", "err", fmt.Sprintf(format, values...))
			},
			LastPeerEndpoint: lastPeerEndpoint,
			ConfirmActive:    confirmActive,
			Report: func(r gateway.Report) {
				p.reporter.report(r)
				legs.recordReport(r)
				if r.PathMTU != nil && r.PathMTU.Changed {
					record(describePathMTU(*r.PathMTU))
				}
				keeper.recordReport(r)
				keys.recordReport(r)
				if elector != nil {
					elector.recordReport(r)
				}
				if r.Connection != nil {
					replaceValue(connections, r.Connection.Connected)
				}
			},
		})
	})
	return group.Wait()
}

// The reasons of Events about the size of packets that reach the peer.
const (
	pathMTUReducedReason  = "PathMTUReduced"
	pathMTURestoredReason = "PathMTURestored"
)

// describePathMTU returns the Event about a new limit for packets to the peer.
func describePathMTU(p gateway.PathMTU) (kind, reason, text string) {
	if p.Path < p.Tunnel {
		const text = "packets of %d bytes (spec.mtu) do not reach the gateway of the peer, so packets are limited to the %d bytes that do. " +
			"Raise the MTU of the network between the gateways, or set spec.mtu of the gateways of both clusters to %d"
		return corev1.EventTypeWarning, pathMTUReducedReason, fmt.Sprintf(text, p.Tunnel, p.Path, p.Path)
	}
	return corev1.EventTypeNormal, pathMTURestoredReason, fmt.Sprintf("packets of %d bytes (spec.mtu) reach the gateway of the peer again", p.Tunnel)
}

// replaceValue puts the latest value into a channel with a buffer of one, without blocking.
func replaceValue[T any](channel chan T, value T) {
	for {
		select {
		case channel <- value:
			return
		default:
		}
		select {
		case <-channel:
		default:
		}
	}
}

// kinds returns the caches of a gateway. They need permissions only in the tenant namespace, and for Nodes and
// IPs, and with --pod-routes for all pods.
func (o *runOptions) kinds() map[client.Object]cache.ByObject {
	inNamespace := func(name string) cache.ByObject {
		by := cache.ByObject{Namespaces: map[string]cache.Config{o.namespace: {}}}
		if name != "" {
			by.Field = fields.OneTermEqualSelector("metadata.name", name)
		}
		return by
	}
	kinds := map[client.Object]cache.ByObject{
		&networking.Configuration{}: inNamespace(""),
		&networking.PublicKey{}:     inNamespace(""),
		&networking.GatewayServer{}: inNamespace(o.name),
		&networking.GatewayClient{}: inNamespace(o.name),
		&networking.Connection{}:    inNamespace(connectionName(o.name)),
	}
	if o.standby {
		kinds[&coordinationv1.Lease{}] = inNamespace(wire.GatewayElection)
		kinds[&discoveryv1.EndpointSlice{}] = inNamespace(wire.GatewayElection)
	}
	maps.Copy(kinds, nodeKinds())
	if o.podRoutes {
		kinds[&corev1.Pod{}] = podsOfNodes()
	}
	return kinds
}

// peering converts objects into a desired.Peering.
type peering struct {
	options   *runOptions
	reader    client.Reader
	reporter  *reporter
	nodes     nodes
	endpoints endpoints
	// retry receives a value when the next endpoint of the peer should be tried.
	retry chan struct{}
	// standby is true while this pod is a standby. It then does not try endpoints. server is true if the peer connects to this gateway.
	standby, server atomic.Bool
	// keys contains the private keys of this gateway. Its method read belongs to the goroutine that calls build.
	keys keyFiles
	// usedKey is the public key of this gateway that is in use. It is nil if there was no key yet.
	usedKey atomic.Pointer[[]byte]
}

// build builds a desired.Peering from the caches.
func (p *peering) build(ctx context.Context) (desired.Peering, error) {
	o := p.options
	input := desired.Peering{ClusterID: o.clusterID, PodMTU: o.mtu}
	input.PodIP, _ = netip.ParseAddr(o.podIP) // it is optional with --mtu
	var err error
	if input.Server, err = getObject(ctx, p.reader, o.namespace, o.name, &networking.GatewayServer{}); err != nil {
		return input, err
	}
	if input.Client, err = getObject(ctx, p.reader, o.namespace, o.name, &networking.GatewayClient{}); err != nil {
		return input, err
	}
	input.Server, input.Client = preferRunningEnd(input.Server, input.Client)
	switch {
	case input.Server != nil:
		input.RemoteClusterID = input.Server.Labels[wire.RemoteClusterIDLabel]
		input.Standby = o.isStandby(input.Server.Status.InternalEndpoint)
	case input.Client != nil:
		input.RemoteClusterID = input.Client.Labels[wire.RemoteClusterIDLabel]
		input.Standby = o.isStandby(input.Client.Status.InternalEndpoint)
	default:
		return input, fmt.Errorf("waiting for the GatewayServer or the GatewayClient %s/%s", o.namespace, o.name)
	}
	if input.RemoteClusterID == "" {
		return input, fmt.Errorf("the gateway %s/%s has no label %s: set it to the ID of the peer", o.namespace, o.name, wire.RemoteClusterIDLabel)
	}
	p.standby.Store(input.Standby)
	p.server.Store(input.Server != nil)
	if err := p.readPeer(ctx, &input); err != nil {
		return input, err
	}
	p.reporter.refuse("rp_filter", checkReversePathFilter(readReversePathFilter(), input.PodIP, input.Configuration))
	if err := p.readNodes(ctx, &input); err != nil {
		return input, err
	}
	if input.Client != nil {
		var err error
		input.Endpoint, err = p.endpoints.choose(ctx, input.Client.Spec.Endpoint)
		if err != nil {
			err = fmt.Errorf("GatewayClient %s/%s, %w", o.namespace, o.name, err)
		}
		p.reporter.refuse("endpoint", err)
	}
	p.reporter.refuse("objects", nil)
	return input, nil
}

// readPeer reads the ranges and the keys from the caches.
func (p *peering) readPeer(ctx context.Context, input *desired.Peering) error {
	o := p.options
	var configurations networking.ConfigurationList
	var keys networking.PublicKeyList
	selector := []client.ListOption{client.InNamespace(o.namespace), client.MatchingLabels{wire.RemoteClusterIDLabel: input.RemoteClusterID}}
	if err := errors.Join(p.reader.List(ctx, &configurations, selector...), p.reader.List(ctx, &keys, selector...)); err != nil {
		return err
	}
	var ambiguous, ambiguousKey string
	input.Configuration, ambiguous = findOnly("Configuration", o.namespace, input.RemoteClusterID, configurations.Items)
	input.PublicKey, ambiguousKey = findOnly("PublicKey", o.namespace, input.RemoteClusterID, keys.Items)
	for _, text := range []string{ambiguous, ambiguousKey} {
		if text != "" {
			input.Problem = text
		}
	}
	if input.Configuration != nil {
		stripMetadata(input.Configuration)
	}
	var acceptedByPeer [][]byte
	if input.PublicKey != nil {
		input.OtherPublicKeys = acceptedKeys(input.PublicKey)[1:]
		acceptedByPeer = networking.ParseKeys(input.PublicKey.Annotations[wire.AcceptedKeysAnnotation])
		stripMetadata(input.PublicKey)
	}
	var err error
	input.PrivateKey, input.OwnPublicKeys, err = p.keys.read(o.usesAlternateKeys(input.Server, input.Client), acceptedByPeer)
	if len(input.OwnPublicKeys) > 0 {
		p.usedKey.Store(&input.OwnPublicKeys[0])
	}
	if input.PrivateKey == nil && input.Problem == "" {
		input.Problem, err = err.Error(), nil // it is reported with the other objects
	}
	p.reporter.refuse("key", err)
	return nil
}

func (p *peering) readNodes(ctx context.Context, input *desired.Peering) error {
	var list corev1.NodeList
	var ips ipam.IPList
	if err := errors.Join(p.reader.List(ctx, &list), p.reader.List(ctx, &ips)); err != nil {
		return err
	}
	ofNodes, mappings, err := splitIPs(p.options.installation, ips.Items)
	p.reporter.refuse("ips", err)
	input.Mappings, input.Node = mappings, p.options.node
	input.Nodes, err = p.nodes.translate(list.Items, ofNodes)
	p.reporter.refuse("nodes", err)
	if p.options.podRoutes {
		var pods corev1.PodList
		if err := p.reader.List(ctx, &pods); err != nil {
			return err
		}
		addPods(input.Nodes, pods.Items)
	}
	return nil
}

// getObject returns an object without the metadata that stripMetadata removes, or nil if the object does not exist.
func getObject[T client.Object](ctx context.Context, reader client.Reader, namespace, name string, into T) (found T, err error) {
	err = reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return found, nil
	}
	if err != nil {
		return found, fmt.Errorf("reading %T %s/%s, %w", into, namespace, name, err)
	}
	return stripMetadata(into), nil
}

// tryEndpoints moves on to the next endpoint at intervals, while the peer does not answer. If the gateway has two keys, it also tries the
// other one. A server does so half as often, so that two gateways with two keys each meet.
func (p *peering) tryEndpoints(ctx context.Context, connections <-chan bool) error {
	timer := time.NewTicker(endpointRetryInterval)
	defer timer.Stop()
	attempts := 0
	for connected := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case connected = <-connections:
			timer.Reset(endpointRetryInterval)
			if connected {
				attempts = 0
				continue
			}
		case <-timer.C:
			if connected || p.standby.Load() {
				continue
			}
			attempts++
			if !p.server.Load() || attempts%2 == 0 {
				p.keys.tryOther()
			}
		}
		p.endpoints.advance()
		select {
		case p.retry <- struct{}{}:
		default:
		}
	}
}

// recordEvents returns a function that writes Events about the GatewayServer or GatewayClient. It does not block.
func (p *peering) recordEvents(config *rest.Config) (record func(kind, reason, text string), closeEvents func(), err error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("creating a client for Events, %w", err)
	}
	broadcaster := events.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events(p.options.namespace)})
	recorder := broadcaster.NewRecorder(newScheme(), corev1.EventSource{Component: userAgent})
	record = func(kind, reason, text string) {
		if object := p.findGateway(); object != nil {
			recorder.Event(object, kind, reason, printable.Message(text))
		}
	}
	return record, broadcaster.Shutdown, nil
}

// findGateway returns the gateway's object from the cache, or nil if it is not there.
func (p *peering) findGateway() client.Object {
	object, _, err := p.options.readGateway(context.Background(), p.reader)
	if err != nil {
		return nil
	}
	return object
}
