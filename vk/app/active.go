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

// active contains the parts of a virtual kubelet on a replica that is the leader or a standby.
type active struct {
	*kubelet
	provider   *connection.Connection
	kubeconfig []byte // kubeconfig of the provider if it was read from a Secret
	tenant     string // tenant namespace of this cluster on the provider
	plugins    *plugins
	reflection *reflection.Manager
	metrics    *cmdutil.Registrations

	group *errgroup.Group // goroutines of all running parts; set by startParts
	ctx   context.Context //nolint:containedctx // of the group
	stop  func()          // cancels the field ctx

	// leads and the fields below it are set when this replica becomes the leader.
	leads     atomic.Bool
	pinger    *pinger.Pinger
	resources *resources.Follower
	node      *node.Controller // nil if --create-node is not set
}

// newActive creates the parts that run both on the leader and on standby replicas, but does not start them. It waits
// for the Secret with the provider's kubeconfig. The provider itself may be unreachable.
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
	reachesProvider, leadsShared := func() bool { return a.pinger.Unreachable() == nil }, func() bool { return a.reflection.IsLeading() }
	if err := k.loadDeclared(ctx, loaded, reachesProvider, leadsShared); err != nil {
		return nil, err
	}
	if err := errors.Join(a.metrics.Register(loaded), a.metrics.Register(loaded.probations)); err != nil {
		return nil, fmt.Errorf("registering metrics, %w", err)
	}
	if a.reflection, err = a.newReflection(ctx, standBy); err != nil {
		return nil, fmt.Errorf("setting up reflection, %w", err)
	}
	loaded.declared.Namespaces().Subscribe(a.reflection.EnqueueNamespace)
	loaded.declared.OnEased(a.reflection.Reevaluate)
	return a, nil
}

// takeOver creates the parts that only run on the leader.
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
		Local: a.local, Remote: a.provider.Config(), Probations: a.plugins.probations,
		LocalClusterID: a.HomeClusterID, RemoteClusterID: a.ForeignClusterID,
		NodeName: a.NodeName, NodeIP: a.NodeIP, TenantNamespace: a.TenantNamespace, VirtualNode: a.VirtualNode, LiqoNamespace: a.LiqoNamespace,
		RemoteTenantNamespace: a.tenant,
		Registry:              a.plugins.registry,
		Workers:               workers, Policies: policies, WithoutStatus: without,
		RemoteIPs: remoteIPs, LocalPodCIDRs: localPods, OwnCIDRs: own, ForeignCIDRs: foreign, ForeignPodCIDRs: foreignPods, FollowIPs: followIPs, DisableIPReflection: a.DisableIPReflection,
		APIServerSupport: support, APIServer: a.apiServer(ctx, followIPs),
		Storage:      reflection.Storage{Enabled: a.Storage, Class: a.VirtualStorageClass, RemoteClass: a.RemoteStorageClass},
		Classes:      a.Classes(),
		StandBy:      standBy,
		ResyncPeriod: a.ResyncPeriod, ReferenceTimeout: cmp.Or(a.ReferenceTimeout, -1),
		Registerer: a.metrics, Log: slog.Default(),
	})
}

// newResources returns the Follower that starts and stops the reflection of the kinds in ReflectedResources.
func (a *active) newResources() (*resources.Follower, error) {
	return resources.New(resources.Options{
		Local: a.local, Remote: a.provider.Config(), LocalClusterID: a.HomeClusterID, RemoteClusterID: a.ForeignClusterID,
		NodeName: a.NodeName, VirtualNode: a.VirtualNode, Engine: a.reflection, Chains: a.plugins.chains, RolePrefix: a.RolePrefix,
		Events: a.report.recorder, Log: slog.Default(),
	})
}

func (a *active) newNode(ctx context.Context) (*node.Controller, error) {
	provider, err := discovery.NewDiscoveryClientForConfig(a.provider.Config())
	if err != nil {
		return nil, fmt.Errorf("creating a client for the provider, %w", err)
	}
	controller, err := node.NewController(node.Config{
		Identity: node.Identity{
			Name: a.NodeName, RemoteClusterID: a.ForeignClusterID, Address: a.NodeIP, Port: int32(a.kubeletPort()),
			KubeletVersion: a.serverVersion(ctx), Labels: a.NodeExtraLabels, Annotations: a.NodeExtraAnnotations,
		},
		Local: a.local, Namespace: a.TenantNamespace, VirtualNode: a.VirtualNode,
		CheckNetwork: a.CheckNetwork, LeaseDuration: a.LeaseDuration,
		Pinger: a.pinger, Clock: clock.RealClock{},
		ProviderVersion: func(ctx context.Context) (string, error) { return serverversion.Read(ctx, provider.RESTClient()) },
		FolderPlugins:   a.plugins.describeFolder,
		Warn: func(reason, message string) {
			log.FromContext(ctx).Info("Warning about the virtual node", "reason", reason, "message", message)
			a.report.reportWarning(reason, message)
		},
	})
	if err == nil {
		refresh := controller.Refresh
		a.plugins.folderChanged.Store(&refresh)
	}
	return controller, err
}

// shutdownGrace limits the shutdown of all parts together. Only watches of an unresponsive API server need longer,
// because client-go ignores the canceled context until the next attempt. The process need not wait for these watches,
// because they write nothing.
const shutdownGrace = 5 * time.Second

// startParts starts the parts that run on the leader and on standby replicas. They run until ctx ends or a part fails
// permanently.
func (a *active) startParts(ctx context.Context) {
	ctx, a.stop = context.WithCancel(ctx)
	a.group, ctx = errgroup.WithContext(ctx)
	a.ctx = ctx
	if a.SharedLease {
		a.reflection.Elect()
	}
	a.group.Go(func() error { return a.plugins.watchFolder(ctx) })
	a.group.Go(func() error { return a.plugins.declared.Run(ctx) })
	a.group.Go(func() error { return a.rehearseCandidates(ctx) })
	a.group.Go(func() error { return a.reflection.Run(ctx) })
	if a.kubeconfig != nil {
		warn := a.warnKubeconfig(ctx, "continuing with the previous one")
		a.group.Go(func() error { return a.kubeconfigSecret().Follow(ctx, a.kubeconfig, a.renewCredentials(ctx), warn) })
	}
}

// runLeader also starts the parts that only run on the leader. When this replica is no longer the leader, or when a
// part has failed permanently, runLeader waits for all parts and returns.
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
	a.plugins.declared.Lead()
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

// stopParts stops all parts that were started, and waits until they have stopped.
func (a *active) stopParts() error {
	defer a.stop()
	defer a.metrics.Close()
	return a.waitForParts(a.ctx, a.group)
}

// waitForParts returns when all goroutines of group have returned, or when ctx has ended and shutdownGrace has passed
// since then.
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
	// The resources are freed in another goroutine, because this replica may become the leader again before the parts
	// have returned.
	go func() {
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

// closeResources frees resources that the stopped parts no longer use.
func (a *active) closeResources(ctx context.Context) error {
	if a.metrics != nil {
		a.metrics.Close()
	}
	if a.plugins == nil {
		return nil
	}
	return a.plugins.closeModules(ctx)
}

// closedAfter returns a channel that is closed when ctx has ended and the duration grace has passed since then.
func closedAfter(ctx context.Context, grace time.Duration) <-chan struct{} {
	late := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(late) }) })
	return late
}

// sharedHolder returns the prefix of the identities with which the replicas of a virtual node compete for the shared
// lease. The prefix ends with a character that node names cannot contain, so it never matches another node.
func sharedHolder(nodeName string) string { return nodeName + "_" }

// competeForShared competes for the shared lease. While this process holds the lease, it reflects the objects that all
// virtual nodes of the provider share. If the lease is lost, the process continues to reflect its own pods and competes
// for the lease again.
func (a *active) competeForShared(ctx context.Context) error {
	election := a.newElection(wire.SharedLease, sharedHolder(a.NodeName)+a.replicaIdentity())
	// If another holder has the prefix of this node, it is gone, because this replica already leads the virtual node.
	lead := func(leads bool) {
		a.reflection.SetLeading(leads)
		a.plugins.noteChange() // the virtual node that holds the lease rehearses the shared kinds
	}
	election.StandBy = func(string) { lead(false) }
	election.Gone = func(holder string) bool { return strings.HasPrefix(holder, sharedHolder(a.NodeName)) }
	for ctx.Err() == nil {
		err := election.Run(ctx, func(leading context.Context) error {
			lead(true)
			<-leading.Done()
			lead(false)
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

// providerError returns an error that explains why the provider counts as unreachable, or nil if the provider is
// reachable.
func (a *active) providerError() error {
	if err := a.pinger.Unreachable(); err != nil {
		return fmt.Errorf("it %w", err)
	}
	return nil
}

// readinessError returns an error that describes the first part that is not ready, or nil if all parts are ready.
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
