// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	v1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/dynamicclient"
	"github.com/refract-project/refract/internal/serverversion"
	"github.com/refract-project/refract/vk/namespaces"
	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/report"
)

// Manager reflects the objects of this cluster to one provider. Safe for concurrent use.
type Manager struct {
	options       Options
	log           *slog.Logger
	local, remote dynamic.Interface
	writer        dynamic.Interface // client of the provider whose responses have managedFields
	remoteVersion func(context.Context) (string, error)
	core          *v1.CoreV1Client
	breaker       *breaker.Breaker
	probe         rest.Interface // calls the provider and bypasses the breaker
	events        *report.Reporter
	metrics       *metrics
	mapper        *namespaces.Mapper
	leading       atomic.Bool
	electing      atomic.Bool   // the leading virtual kubelet is not known yet
	starting      waiters       // objects that wait for the election, and for scopes that are being started
	standing      atomic.Bool   // this replica stands by: nothing is evaluated
	lead          chan struct{} // closed by Lead
	leadOnce      sync.Once
	taken         chan struct{} // closed when this replica has taken over
	nodeIsOurs    atomic.Bool   // the Node was seen with our labels; its pods are not ours before
	evaluated     atomic.Uint64 // number of evaluated objects

	here, there        informer.Source
	informers          map[schema.GroupVersionResource]*informer.Informer // informers of this cluster
	virtualNode, nodes *informer.Informer
	ips                *informer.Informer // nil unless Options.FollowIPs

	settings   atomic.Pointer[settings]
	settingsMu sync.Mutex    // serializes changes
	changes    atomic.Uint64 // number of changes of settings, and of the mapping of addresses

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
	listeners  map[*func()]bool      // called after changes of the offloaded namespaces
	offloaded  map[string]string     // the namespaces for which kinds that follow them were last enqueued
}

// New prepares the reflection and contacts neither cluster. The error lists all errors of the options.
func New(options Options) (*Manager, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, fmt.Errorf("configuring reflection, %w", err)
	}
	m := &Manager{
		options: options, log: options.Log.With("provider", options.RemoteClusterID), metrics: newMetrics(),
		informers: map[schema.GroupVersionResource]*informer.Informer{}, extensions: map[string]*extension{},
		begun: make(chan struct{}), mapped: make(chan struct{}), lead: make(chan struct{}), taken: make(chan struct{}), listeners: map[*func()]bool{},
	}
	m.leading.Store(true)
	if m.standing.Store(options.StandBy); !options.StandBy {
		m.Lead()
		close(m.taken)
	}
	m.remoteVersion = serverversion.Cached(m.readRemoteVersion, options.Clock)
	m.events = report.New(m.metrics.eventsDropped.Inc)
	m.settings.Store(&settings{virtualNodes: map[string]any{}, apiServerIPs: texts(options.APIServer.IPs)})
	for _, prepare := range []func() error{m.connect, m.addReflectors, m.followNamespaces} {
		if err := prepare(); err != nil {
			return nil, err
		}
	}
	m.followSettings()
	if err := m.metrics.register(options.Registerer, m.Reachable, m.depths, m.quarantined); err != nil {
		return nil, fmt.Errorf("registering metrics, %w", err)
	}
	return m, nil
}

func texts(list []string) []any {
	converted := make([]any, 0, len(list))
	for _, text := range list {
		converted = append(converted, text)
	}
	return converted
}

// connect creates the clients. They have no client-side rate limit: the number of workers is limited, and the API
// server's priority and fairness is the better flow control.
func (m *Manager) connect() error {
	local, remote := rest.CopyConfig(m.options.Local), rest.CopyConfig(m.options.Remote)
	local.QPS, remote.QPS = -1, -1
	local.Wrap(answerAtOnce)
	remote.Wrap(answerAtOnce)
	var faults []error
	var err error
	decoded := dynamicclient.Options{DropManagedFields: true}
	if m.local, err = dynamicclient.New(local, decoded); err != nil {
		faults = append(faults, fmt.Errorf("creating a client for this cluster, %w", err))
	}
	if m.core, err = v1.NewForConfig(local); err != nil {
		faults = append(faults, fmt.Errorf("creating a client for this cluster, %w", err))
	}
	if probe, err := discovery.NewDiscoveryClientForConfig(remote); err != nil {
		faults = append(faults, fmt.Errorf("creating a client for the provider, %w", err))
	} else {
		m.probe = probe.RESTClient()
		m.breaker = m.newBreaker(m.probe)
	}
	remote.Wrap(m.breaker.Transport)
	if m.remote, err = dynamicclient.New(remote, decoded); err != nil {
		faults = append(faults, fmt.Errorf("creating a client for the provider, %w", err))
	}
	if m.writer, err = dynamicclient.New(remote, dynamicclient.Options{}); err != nil {
		faults = append(faults, fmt.Errorf("creating a client for the provider, %w", err))
	}
	strings := informer.NewStrings()
	m.here, m.there = informer.Source{Client: m.local, Strings: strings}, informer.Source{Client: m.remote, Breaker: m.breaker, Strings: strings}
	if m.here.Metadata, err = metadata.NewForConfig(local); err != nil {
		faults = append(faults, fmt.Errorf("creating a client for this cluster, %w", err))
	}
	if m.there.Metadata, err = metadata.NewForConfig(remote); err != nil {
		faults = append(faults, fmt.Errorf("creating a client for the provider, %w", err))
	}
	return errors.Join(faults...)
}

// newBreaker returns the breaker. Its probes bypass the breaker.
func (m *Manager) newBreaker(client rest.Interface) *breaker.Breaker {
	return breaker.New(breaker.Options{Clock: m.options.Clock, Every: m.options.ProbeEvery, Log: m.log, Changed: m.providerChanged, Probe: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, m.options.CallTimeout/2)
		defer cancel()
		err := client.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
		if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError {
			if code := status.Status().Code; code == http.StatusUnauthorized || code == http.StatusForbidden {
				return &breaker.DeniedError{Err: err}
			}
			return nil // The API server responds. If it hides this path, each call reports that.
		}
		return err
	}})
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

// informer returns the informer of a resource of this cluster, shared by all users.
func (m *Manager) informer(resource schema.GroupVersionResource, o informer.Options) *informer.Informer {
	if m.informers[resource] == nil {
		m.informers[resource] = m.here.New(resource, o)
	}
	return m.informers[resource]
}

// followSettings watches the inputs of the plugins' context.
func (m *Manager) followSettings() {
	m.virtualNode = m.informer(offloadingv1beta1.VirtualNodeGVR, informer.Options{Selection: informer.Selection{
		Namespace: m.options.TenantNamespace, Fields: fields.OneTermEqualSelector("metadata.name", m.options.VirtualNode).String(),
	}})
	m.virtualNode.OnEvent(m.virtualNodeChanged)
	m.nodes = m.informer(nodesResource, informer.Options{Selection: informer.Selection{Labels: wire.RemoteClusterIDLabel}})
	m.nodes.OnEvent(m.nodeChanged)
	if m.options.FollowIPs {
		m.ips = m.informer(ipsResource, informer.Options{Indexers: cache.Indexers{addressIndex: indexByAddress}})
		m.ips.OnEvent(m.ipChanged)
	}
}

func (m *Manager) followNamespaces() (err error) {
	m.mapper, err = namespaces.New(namespaces.Options{
		Client: m.local, TenantNamespace: m.options.TenantNamespace, RemoteClusterID: m.options.RemoteClusterID,
		Handler: m, Events: m.events.Recorder("NamespaceMap"), Log: m.log, Grace: m.options.MapGrace, Clock: m.options.Clock,
	})
	return err
}

// sharedCaches returns the other caches that the desired state of a kind depends on. An evaluation without them would
// write something else than before a restart.
func (m *Manager) sharedCaches(kind Kind) []cache.DoneChecker {
	needs := []cache.DoneChecker{m.virtualNode}
	if kind.Follows.Network || kind.Follows.Nodes {
		needs = append(needs, m.nodes)
	}
	if kind.Follows.Namespaces {
		needs = append(needs, m.mapper.SyncedChecker())
	}
	if m.ips != nil && (kind.Follows.Network || kind.Follows.APIServer) {
		needs = append(needs, m.ips)
	}
	return needs
}

// packPeriod is the interval of the task that packs objects which were not used since its last run.
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
	m.breaker.Start(ctx)
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

func (m *Manager) startEvents() {
	m.events.Start(&v1.EventSinkImpl{Interface: m.core.Events(metav1.NamespaceAll)})
}

// work starts everything that evaluates objects, and so may write.
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

// changesEnded waits until the scopes that are being started have started. After the end of Run's context nothing is
// started any more.
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

func (m *Manager) eachScope(f func(*Scope)) {
	for _, t := range m.allExtensions() {
		for _, s := range t.all() {
			f(s)
		}
	}
}

// chainSwapped enqueues every object of the kind. Only changed results are written.
func (m *Manager) chainSwapped(chain string, hook host.Hook, generation uint64) {
	m.log.Info("Swapped a plugin chain", "kind", chain, "hook", hook.String(), "generation", generation)
	for _, r := range m.all() {
		if r.kind.Name == chain && !r.kind.Chain.None && (hook == host.Outgoing || r.kind.hasIncoming()) {
			r.swaps.Add(1)
			r.enqueueAll()
		}
	}
}

// providerChanged resumes the waiting work when the provider is reachable again.
func (m *Manager) providerChanged(reachable bool) {
	if !reachable {
		return
	}
	for _, r := range m.all() {
		r.comeBack()
	}
}
