// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/pinger"
	"github.com/refract-project/refract/internal/serverversion"
	"github.com/refract-project/refract/vk/kubeletapi"
	"github.com/refract-project/refract/vk/node"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/resources"
)

// active is the virtual kubelet of a replica that leads or stands by.
type active struct {
	*kubelet
	provider   *connection.Connection
	kubeconfig []byte // kubeconfig of the provider if it comes from a Secret
	tenant     string // namespace of this cluster on the provider
	plugins    *plugins
	reflection *reflection.Manager
	metrics    *cmdutil.Registrations

	group *errgroup.Group // all running parts, from start on
	ctx   context.Context //nolint:containedctx // of the group
	stop  func()          // cancels ctx

	// Set when this replica leads.
	leads     atomic.Bool
	pinger    *pinger.Pinger
	resources *resources.Follower
	node      *node.Controller // nil unless --create-node is set
}

// newActive builds the parts that run both on the leader and on standby replicas, and starts none. It waits for the
// kubeconfig of the provider, but not for the provider.
func (k *kubelet) newActive(ctx context.Context, standBy bool) (_ *active, err error) {
	a := &active{kubelet: k, metrics: cmdutil.NewRegistrations(metrics.Registry)}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.closeResources(context.WithoutCancel(ctx)))
		}
	}()
	if a.provider, a.kubeconfig, err = k.connectProvider(ctx); err != nil {
		return nil, err
	}
	a.tenant = a.remoteTenantNamespace(ctx)
	a.provider.Expect(connection.Peer{ClusterID: k.ForeignClusterID, TenantNamespace: a.tenant})
	k.ready.waitFor("the plugins are not loaded yet")
	loaded, err := k.loadPlugins(ctx)
	if err != nil {
		return nil, err
	}
	a.plugins = loaded
	if err := a.metrics.Register(loaded); err != nil {
		return nil, fmt.Errorf("registering metrics, %w", err)
	}
	if a.reflection, err = a.newReflection(ctx, standBy); err != nil {
		return nil, fmt.Errorf("setting up reflection, %w", err)
	}
	return a, nil
}

// takeOver builds the parts that run on the leader only.
func (a *active) takeOver(ctx context.Context) (err error) {
	if a.resources, err = a.newResources(); err != nil {
		return err
	}
	a.pinger = pinger.New(pinger.Livez(a.provider.URL(), a.provider.Streams()), a.PingInterval, a.PingTimeout, clock.RealClock{})
	if !a.CreateNode {
		return nil
	}
	a.node, err = a.newNode(ctx)
	return err
}

func (a *active) newReflection(ctx context.Context, standBy bool) (*reflection.Manager, error) {
	remoteIPs, err := a.RemoteIPs()
	if err != nil {
		return nil, err
	}
	localPods, err := ipmap.ParseRanges("--local-podcidr", a.LocalPodCIDRs)
	if err != nil {
		return nil, err
	}
	own, err := ipmap.ParseRanges("--own-cidrs", a.OwnCIDRs)
	if err != nil {
		return nil, err
	}
	foreign, err := ipmap.ParseRanges("--foreign-cidrs", a.ForeignCIDRs)
	if err != nil {
		return nil, err
	}
	foreignPods, err := ipmap.ParseRanges("--remote-pod-cidr-remap, --remote-external-cidr-remap", slices.Concat(a.PodCIDRRemaps, a.ExternalCIDRRemaps))
	if err != nil {
		return nil, err
	}
	followIPs, err := a.mayFollowIPs(ctx)
	if err != nil {
		return nil, err
	}
	support, err := a.apiServerSupport(ctx)
	if err != nil {
		return nil, err
	}
	workers, policies := map[string]int{}, map[string]reflection.Policy{}
	for kind, count := range a.Workers {
		workers[kind] = *count
	}
	for kind, policy := range a.Policies {
		policies[kind] = reflection.Policy(*policy)
	}
	var without []string
	for kind, shown := range a.StatusBack {
		if !*shown {
			without = append(without, kind)
		}
	}
	return reflection.New(reflection.Options{
		Local: a.local, Remote: a.provider.Config(),
		LocalClusterID: a.HomeClusterID, RemoteClusterID: a.ForeignClusterID,
		NodeName: a.NodeName, NodeIP: a.NodeIP, TenantNamespace: a.TenantNamespace, VirtualNode: a.VirtualNode, LiqoNamespace: a.LiqoNamespace,
		Registry: a.plugins.registry,
		Workers:  workers, Policies: policies, WithoutStatus: without,
		RemoteIPs: remoteIPs, LocalPodCIDRs: localPods, OwnCIDRs: own, ForeignCIDRs: foreign, ForeignPodCIDRs: foreignPods, FollowIPs: followIPs, DisableIPReflection: a.DisableIPReflection,
		APIServerSupport: support, APIServer: a.apiServer(ctx, followIPs),
		Storage:      reflection.Storage{Enabled: a.Storage, Class: a.VirtualStorageClass, RemoteClass: a.RemoteStorageClass},
		Classes:      a.Classes(),
		StandBy:      standBy,
		ResyncPeriod: a.ResyncPeriod, ReferenceTimeout: cmp.Or(a.ReferenceTimeout, -1),
		Registerer: a.metrics, Log: slog.Default(),
	})
}

// newResources returns the follower of ReflectedResources.
func (a *active) newResources() (*resources.Follower, error) {
	return resources.New(resources.Options{
		Local: a.local, Remote: a.provider.Config(), LocalClusterID: a.HomeClusterID, RemoteClusterID: a.ForeignClusterID,
		NodeName: a.NodeName, VirtualNode: a.VirtualNode, Engine: a.reflection, Chains: a.plugins.chains, RolePrefix: a.RolePrefix, Log: slog.Default(),
	})
}

func (a *active) newNode(ctx context.Context) (*node.Controller, error) {
	provider, err := discovery.NewDiscoveryClientForConfig(a.provider.Config())
	if err != nil {
		return nil, fmt.Errorf("creating a client for the provider, %w", err)
	}
	return node.NewController(node.Config{
		Identity: node.Identity{
			Name: a.NodeName, RemoteClusterID: a.ForeignClusterID, Address: a.NodeIP, Port: int32(a.kubeletPort()),
			KubeletVersion: a.serverVersion(ctx), Labels: a.NodeExtraLabels, Annotations: a.NodeExtraAnnotations,
		},
		Local: a.local, Namespace: a.TenantNamespace, VirtualNode: a.VirtualNode,
		CheckNetwork: a.CheckNetwork, LeaseDuration: a.LeaseDuration,
		Pinger: a.pinger, Clock: clock.RealClock{},
		ProviderVersion: func(ctx context.Context) (string, error) { return serverversion.Read(ctx, provider.RESTClient()) },
		Warn: func(reason, message string) {
			log.FromContext(ctx).Info("Warning about the virtual node", "reason", reason, "message", message)
			a.report.reportWarning(reason, message)
		},
	})
}

// shutdownGrace limits the shutdown of all parts together. Parts that still run after it are watches of an unresponsive
// API server, which wait for their next attempt and ignore the context. They write nothing.
const shutdownGrace = 5 * time.Second

// startParts starts the parts that run on the leader and on standby replicas, until ctx ends or a part fails permanently.
func (a *active) startParts(ctx context.Context) {
	ctx, a.stop = context.WithCancel(ctx)
	a.group, ctx = errgroup.WithContext(ctx)
	a.ctx = ctx
	if a.SharedLease {
		a.reflection.Elect()
	}
	a.group.Go(func() error { return a.plugins.watchFolder(ctx) })
	a.group.Go(func() error { return a.reflection.Run(ctx) })
	if a.kubeconfig != nil {
		warn := a.warnKubeconfig(ctx, "continuing with the previous one")
		a.group.Go(func() error { return a.kubeconfigSecret().Follow(ctx, a.kubeconfig, a.renewCredentials(ctx), warn) })
	}
}

// runLeader starts the parts of the leader, too. It returns when leading has ended or a part has failed permanently, and all
// parts have returned.
func (a *active) runLeader(leading context.Context) error {
	defer context.AfterFunc(leading, a.stop)()
	ctx, group := a.ctx, a.group
	server, err := a.newServer(ctx)
	if err == nil {
		err = a.takeOver(ctx)
	}
	if err != nil {
		a.stop()
		return errors.Join(err, a.stopParts())
	}
	a.leads.Store(true)
	a.kubelet.ready.setActive(a)
	a.reflection.Lead()
	group.Go(func() error { return server.Serve(ctx, a.listener.lendListener()) })
	group.Go(func() error { a.pinger.Run(ctx); return nil })
	group.Go(func() error { a.sendHeartbeats(ctx); return nil })
	group.Go(func() error { return a.resources.Run(ctx) })
	if a.node != nil {
		group.Go(func() error { return a.node.Run(ctx) })
	}
	if a.SharedLease {
		group.Go(func() error { return a.competeForShared(ctx) })
	}
	return a.stopParts()
}

// stopParts stops all parts that were started and waits for them.
func (a *active) stopParts() error {
	defer a.stop()
	defer a.metrics.Close()
	return a.waitForParts(a.ctx, a.group)
}

// waitForParts returns when all of group has returned, or shutdownGrace after ctx has ended.
func (a *active) waitForParts(ctx context.Context, group *errgroup.Group) error {
	ended := make(chan error, 1)
	go func() { ended <- group.Wait() }()
	select {
	case err := <-ended:
		return errors.Join(err, a.closeResources(context.WithoutCancel(ctx)))
	case <-closedAfter(ctx, shutdownGrace):
	}
	logger := log.FromContext(ctx)
	logger.Info("Not waiting any longer for watches that wait for their next attempt", "after", shutdownGrace.String())
	go func() { // this replica may lead again before they return
		<-ended
		if err := a.closeResources(context.WithoutCancel(ctx)); err != nil {
			logger.Error(err, "The plugins of this term were not closed")
		}
	}()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// closeResources frees the resources that no goroutine uses any more.
func (a *active) closeResources(ctx context.Context) error {
	if a.metrics != nil {
		a.metrics.Close()
	}
	if a.plugins == nil {
		return nil
	}
	return a.plugins.closeModules(ctx)
}

// closedAfter returns a channel that is closed when grace has passed since the end of ctx.
func closedAfter(ctx context.Context, grace time.Duration) <-chan struct{} {
	late := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(late) }) })
	return late
}

// sharedHolder returns the prefix of the identities by which the replicas of a node hold the shared lease. A node's
// name cannot contain its last character.
func sharedHolder(nodeName string) string { return nodeName + "_" }

// competeForShared lets this process reflect the objects that all virtual nodes of the provider share, while it holds
// the lease. Losing the lease does not end the process, which continues with its own pods and competes again.
func (a *active) competeForShared(ctx context.Context) error {
	election := a.newElection(wire.SharedLease, sharedHolder(a.NodeName)+a.replicaIdentity())
	// This replica holds the lease of the node, so no other replica of this node leads.
	election.StandBy = func(string) { a.reflection.SetLeading(false) }
	election.Gone = func(holder string) bool { return strings.HasPrefix(holder, sharedHolder(a.NodeName)) }
	for ctx.Err() == nil {
		err := election.Run(ctx, func(leading context.Context) error {
			a.reflection.SetLeading(true)
			<-leading.Done()
			a.reflection.SetLeading(false)
			return nil
		})
		switch {
		case errors.Is(err, node.ErrLeadershipLost):
			log.FromContext(ctx).Info("Lost the shared lease to another virtual node", "err", err)
		case err != nil:
			return err
		}
	}
	return nil
}

func (a *active) newServer(ctx context.Context) (*kubeletapi.Server, error) {
	clientCA, err := a.clientAuthority(ctx)
	if err != nil {
		return nil, err
	}
	certificate, err := a.servingCertificate(ctx)
	if err != nil {
		return nil, err
	}
	return kubeletapi.New(kubeletapi.Config{
		NodeName: a.NodeName, ClusterID: a.HomeClusterID, Pods: podSource{a.reflection}, Namespaces: namespaceMapper{a.reflection},
		Remote: kubeletapi.Remote{URL: a.provider.URL(), Transport: a.provider.Streams(), Unreachable: a.providerError},
		Access: kubeletapi.NewAccess(a.NodeName, a.client, clientCA), Certificate: certificate, Metrics: processMetrics(),
	}), nil
}

// providerError returns why the provider counts as unreachable, as a sentence.
func (a *active) providerError() error {
	if err := a.pinger.Unreachable(); err != nil {
		return fmt.Errorf("it %w", err)
	}
	return nil
}

// readinessError returns an error that describes the first part that is not ready.
func (a *active) readinessError() error {
	if !a.reflection.Synced() {
		return errors.New("the caches of this cluster are not read yet")
	}
	if !a.leads.Load() || a.node == nil {
		return nil
	}
	select {
	case <-a.node.Ready():
		return nil
	default:
		return errors.New("the node is not registered yet")
	}
}
