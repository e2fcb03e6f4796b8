// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine reflects objects of all kinds. Its files form layers. Apart from callbacks, a file calls only the
// files below it in this list:
//
//	preview.go, subject.go, inspect.go    what other packages learn about a running Manager
//	handler.go, reconcile.go, env.go      the kinds: what they may override, and what they use
//	manager.go                            the start of everything
//	lifecycle.go, standby.go              starts and stops of namespaces, kinds, and the leading replica
//	reflector.go, process.go              one kind: its queue, and what follows an evaluation
//	references.go, enqueue.go, follow.go  one kind in a namespace, while it is watched
//	scope.go                              one kind in a namespace: objects, copies, and the context of plugins
//	state.go, extension.go, denial.go     what is known of kinds and namespaces
//	kind.go, options.go                   the configuration
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/namespaces"
	"github.com/refract-project/refract/vk/reflection/internal/clients"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/metrics"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/report"
	"github.com/refract-project/refract/vk/reflection/internal/settings"
)

// Manager reflects the objects of this cluster to one provider. A Manager is safe for concurrent use.
type Manager struct {
	options   Options
	log       *slog.Logger
	clients   *clients.Clients
	events    *report.Reporter
	metrics   *metrics.Metrics
	mapper    *namespaces.Mapper
	leading   atomic.Bool
	electing  atomic.Bool   // the leading virtual kubelet is not known yet
	starting  queue.Waiters // objects that wait for the election, and for scopes that are being started
	standing  atomic.Bool   // this replica stands by: nothing is evaluated
	lead      chan struct{} // closed by Lead
	leadOnce  sync.Once
	taken     chan struct{} // closed when this replica has taken over
	evaluated atomic.Uint64 // number of evaluated objects
	relabels  atomic.Uint64 // number of calls of EnqueueNamespace

	informers map[schema.GroupVersionResource]*informer.Informer // informers of this cluster

	settings *settings.Settings

	ctx     context.Context // the context of Run
	begun   chan struct{}   // closed by Run when kinds can be started
	mapped  chan struct{}   // closed by Run when the offloaded namespaces are also known
	started time.Time
	wg      sync.WaitGroup

	kinds      sync.Mutex // serializes starts and stops of kinds
	changing   sync.Mutex // serializes starts and stops of scopes
	mu         sync.RWMutex
	extensions map[string]*extension // keyed by local namespace
	reflectors []*reflector          // replaced, never modified
	listeners  map[*func()]bool      // called after changes in the set of offloaded namespaces
	offloaded  map[string]string     // the offloaded namespaces when the kinds that follow them were last enqueued
}

// New returns a Manager without contacting the clusters. The returned error lists all errors of the options.
func New(options Options) (*Manager, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, fmt.Errorf("configuring reflection, %w", err)
	}
	m := &Manager{
		options: options, log: options.Log.With("provider", options.RemoteClusterID), metrics: metrics.New(),
		informers: map[schema.GroupVersionResource]*informer.Informer{}, extensions: map[string]*extension{},
		begun: make(chan struct{}), mapped: make(chan struct{}), lead: make(chan struct{}), taken: make(chan struct{}), listeners: map[*func()]bool{},
	}
	m.leading.Store(true)
	if m.standing.Store(options.StandBy); !options.StandBy {
		m.Lead()
		close(m.taken)
	}
	m.events = report.New(m.metrics.EventsDropped.Inc)
	if err := m.connect(); err != nil {
		return nil, err
	}
	m.followSettings()
	for _, prepare := range []func() error{m.addReflectors, m.followNamespaces} {
		if err := prepare(); err != nil {
			return nil, err
		}
	}
	if err := m.metrics.Register(options.Registerer, m.Reachable, m.depths, m.quarantined); err != nil {
		return nil, fmt.Errorf("registering metrics, %w", err)
	}
	return m, nil
}

// connect creates the clients of both clusters. It sends no request.
func (m *Manager) connect() (err error) {
	m.clients, err = clients.New(clients.Options{
		Local: m.options.Local, Remote: m.options.Remote, RemoteClusterID: m.options.RemoteClusterID, CallTimeout: m.options.CallTimeout,
		ProbeEvery: m.options.ProbeEvery, Changed: m.providerChanged, Clock: m.options.Clock, Log: m.log,
	})
	return err
}

// addReflectors creates a reflector for each kind that has workers.
func (m *Manager) addReflectors() error {
	for _, kind := range m.options.Kinds {
		if workers, ok := m.options.Workers[kind.Name]; ok {
			kind.Workers = workers
		}
		for _, name := range []string{kind.PolicyOf, kind.Name} {
			if policy, ok := m.options.Policies[name]; ok {
				kind.Policy = policy
			}
		}
		if kind.Workers <= 0 || m.options.DisableIPReflection && kind.Follows.Network {
			continue
		}
		r, err := m.newReflector(kind)
		if err != nil {
			return err
		}
		m.reflectors = append(m.reflectors, r)
	}
	return nil
}

// followSettings watches the inputs of the plugins' context.
func (m *Manager) followSettings() {
	o := &m.options
	m.settings = settings.New(settings.Options{
		LocalClusterID: o.LocalClusterID, RemoteClusterID: o.RemoteClusterID, NodeName: o.NodeName, NodeIP: o.NodeIP,
		TenantNamespace: o.TenantNamespace, LiqoNamespace: o.LiqoNamespace, VirtualNode: o.VirtualNode,
		APIServerSupport: o.APIServerSupport, APIServer: o.APIServer, Classes: o.Classes, Storage: o.Storage,
		RemoteIPs: o.RemoteIPs, LocalPodCIDRs: o.LocalPodCIDRs, FollowIPs: o.FollowIPs, DisableIPReflection: o.DisableIPReflection,
		Informer: m.informer, Listener: m, Events: m.events.ForKind("VirtualNode"), Log: m.log,
	})
}

// followNamespaces creates the mapper, which reads the offloaded namespaces from the NamespaceMap.
func (m *Manager) followNamespaces() (err error) {
	m.mapper, err = namespaces.New(namespaces.Options{
		Client: m.clients.Local, TenantNamespace: m.options.TenantNamespace, RemoteClusterID: m.options.RemoteClusterID,
		Handler: m, Events: m.events.Recorder("NamespaceMap"), Log: m.log, Grace: m.options.MapGrace, Clock: m.options.Clock,
	})
	return err
}

// packPeriod is the interval of the task that packs objects that were not used since its last run.
const packPeriod = 2 * time.Second

// Run reflects until ctx ends and all goroutines have ended. With Options.StandBy, it begins when Lead is called. Run
// may be called once.
func (m *Manager) Run(ctx context.Context) error {
	if m.ctx != nil {
		return errors.New("running reflection: it runs already")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.ctx = ctx
	m.clients.Start(ctx)
	defer m.events.Close()
	if !m.options.StandBy {
		m.startEvents()
	}
	for _, informer := range m.informers {
		m.wg.Go(func() { informer.Run(ctx) })
	}
	m.wg.Go(func() { m.mapper.Run(ctx) })
	m.wg.Go(func() { m.every(ctx, packPeriod, func() { m.eachInformer((*informer.Informer).Pack) }) })
	m.wg.Go(func() { m.every(ctx, emptyRecheck, func() { m.eachScope((*Scope).stir) }) })
	if !m.options.StandBy {
		defer m.work(ctx)()
	} else if m.standBy(ctx) {
		m.standing.Store(false)
		m.startEvents()
		defer m.work(ctx)()
		m.takeOver()
	}
	<-ctx.Done()
	m.changesEnded()
	m.wg.Wait()
	return nil
}

// startEvents begins to write Events to this cluster.
func (m *Manager) startEvents() {
	m.events.Start(&v1.EventSinkImpl{Interface: m.clients.Core.Events(metav1.NamespaceAll)})
}

// work starts the goroutines that evaluate objects and may therefore write.
func (m *Manager) work(ctx context.Context) (stop func()) {
	m.started = m.options.Clock.Now()
	for _, r := range m.all() {
		r.run(ctx)
	}
	close(m.begun)
	m.wg.Go(func() {
		if cache.WaitFor(ctx, "", m.mapper.SyncedChecker()) {
			close(m.mapped)
		}
	})
	m.wg.Go(func() { m.enqueueNotOffloaded(ctx) })
	m.wg.Go(func() { m.recheckUnobserved(ctx) })
	m.wg.Go(func() { m.every(ctx, m.options.ResyncPeriod, func() { m.eachInformer((*informer.Informer).Resync) }) })
	return m.options.Registry.Subscribe(m.chainSwapped)
}

// changesEnded waits until the scopes that are being started have started. No further scopes are started after the
// context of Run has ended.
func (m *Manager) changesEnded() {
	m.changing.Lock()
	defer m.changing.Unlock()
}

// enqueueNotOffloaded enqueues the objects of namespaces that are not offloaded, once the offloaded namespaces are
// known.
func (m *Manager) enqueueNotOffloaded(ctx context.Context) {
	needs := []cache.DoneChecker{m.mapper.SyncedChecker()}
	for _, r := range m.all() {
		if r.ofNode != nil {
			needs = append(needs, r.ofNode)
		}
	}
	if cache.WaitFor(ctx, "", needs...) {
		m.NamespacesChanged()
	}
}

// every calls f once per period until ctx ends. It never calls f if the period is 0.
func (m *Manager) every(ctx context.Context, period time.Duration, f func()) {
	if period <= 0 {
		return
	}
	ticker := m.options.Clock.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			f()
		case <-ctx.Done():
			return
		}
	}
}

// eachInformer calls f for each informer.
func (m *Manager) eachInformer(f func(*informer.Informer)) {
	for _, shared := range m.informers {
		f(shared)
	}
	for _, r := range m.all() {
		for _, own := range r.informers {
			f(own)
		}
	}
	m.eachScope(func(s *Scope) {
		for _, own := range s.informers() {
			f(own)
		}
	})
}

// chainSwapped enqueues every object of the kind whose chain was swapped. Changes by users overtake these objects.
// Only changed results are written.
func (m *Manager) chainSwapped(chain string, hook host.Hook, generation uint64) {
	m.log.Info("Swapped a plugin chain", "kind", chain, "hook", hook.String(), "generation", generation)
	for _, r := range m.all() {
		if r.kind.Name == chain && !r.kind.Chain.None && (hook == host.Outgoing || r.kind.hasIncoming()) {
			r.swaps.Add(1)
			r.reevaluateAll()
		}
	}
}

// providerChanged resumes the waiting work when the provider is reachable again.
func (m *Manager) providerChanged(reachable bool) {
	if !reachable {
		return
	}
	for _, r := range m.all() {
		r.queue.Resume()
	}
}
