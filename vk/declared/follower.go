// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	runtimecache "sigs.k8s.io/controller-runtime/pkg/cache"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/vk/reflection"
)

// Options are the options of a Follower. Local, NodeName, RemoteClusterID, Chains and Events are required.
type Options struct {
	Local           *rest.Config // not modified; client-side throttling is disabled in a copy
	NodeName        string       // name of the virtual node, and of its entry in the status
	RemoteClusterID string       // ID of the provider
	Chains          Chains
	Events          record.EventRecorder // writes Events about cluster-scoped objects
	// Probations receives the revisions that were promoted a short time ago. If it is nil, no revision is observed.
	Probations *reflection.Probations
	// ReachesProvider reports whether objects can be reflected. It is called after Lead. If it is nil, the provider
	// counts as reachable.
	ReachesProvider func() bool
	// LeadsShared reports whether this virtual node reflects the kinds that all virtual nodes of its provider share. It
	// is called after Lead. If it is nil, this virtual node reflects them.
	LeadsShared func() bool

	// WereRead is set when declared plugins have been read, and is used longer than the Follower. From then on,
	// ReadPlugins waits until they can be read. If it is nil, the Follower uses its own flag.
	WereRead *atomic.Bool
	// Waiting is called with the reason why ReadPlugins waits. It may be nil.
	Waiting func(reason string)
	// Unavailable is called with the effect and the remedy if the permission to read declared plugins is missing. It
	// may be nil.
	Unavailable func(reason string)

	// Changed is called after a change that the watches have reported was applied, i.e. after the active revisions were
	// installed. It may be nil.
	Changed func()

	CallTimeout     time.Duration // timeout of each API call; 0 means 10 s
	RetryFirst      time.Duration // first delay before a module is read again; 0 means 1 s
	RetryMost       time.Duration // maximum of this delay; 0 means 1 min
	PermissionGrace time.Duration // how long ReadPlugins waits for permissions; 0 means 5 s
	RecheckEvery    time.Duration // interval between checks for unavailable declared plugins; 0 means 2 min

	Log   *slog.Logger     // if it is nil, slog.Default() is used
	Clock clock.WithTicker // if it is nil, the real clock is used
}

const (
	// defaultCallTimeout limits a request to the API server. With a longer timeout, a stalled request delays a
	// promotion or a rollback.
	defaultCallTimeout = 10 * time.Second
	// minRetryDelay and maxRetryDelay bound the delay after a failure. Longer delays keep kinds held that could be
	// reflected again. Shorter delays burden an API server that has problems.
	minRetryDelay = time.Second
	maxRetryDelay = time.Minute
	// defaultPermissionGrace is how long permissions that are missing at the start may take to appear before that is
	// reported. With a shorter grace, an Event reports each upgrade that has not granted them yet.
	defaultPermissionGrace = 5 * time.Second
	// defaultRecheckInterval is the time between two checks for declared plugins in a cluster that had none. With a
	// longer interval, plugins start later after an upgrade.
	defaultRecheckInterval = 2 * time.Minute
)

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{
		{&o.CallTimeout, defaultCallTimeout}, {&o.RetryFirst, minRetryDelay}, {&o.RetryMost, maxRetryDelay}, {&o.PermissionGrace, defaultPermissionGrace},
		{&o.RecheckEvery, defaultRecheckInterval},
	} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	if o.WereRead == nil {
		o.WereRead = &atomic.Bool{}
	}
	for _, call := range []*func(string){&o.Waiting, &o.Unavailable} {
		if *call == nil {
			*call = func(string) {}
		}
	}
	for _, ask := range []*func() bool{&o.ReachesProvider, &o.LeadsShared} {
		if *ask == nil {
			*ask = func() bool { return true }
		}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// Follower runs declared plugins. It is safe for concurrent use.
type Follower struct {
	options    Options
	log        *slog.Logger
	client     dynamic.Interface
	discovery  discovery.DiscoveryInterface
	namespaces *Namespaces

	plugins, revisions cache.SharedIndexInformer
	changed            chan struct{} // makes Run install the set again
	leads              atomic.Bool

	// refreshing is held while the set is installed and reported.
	refreshing  sync.Mutex
	unavailable bool
	isReported  bool // the missing permission was reported
	selectors   selectors
	known       map[string]*pluginState // keyed by the name of the ReflectionPlugin
	reported    map[string]reported     // keyed by the name of the PluginRevision
	said        string                  // last error from writing a status
	denials     admission.DenialEvents  // reports denied writes to the status of a PluginRevision

	mu       sync.Mutex
	statuses []source.Status
	others   map[string]plugins.VirtualNodePlugin // keyed by the name of the PluginRevision; see ReportState

	rolledBack map[string]occasion                    // promotions that this process has rolled back, by ReflectionPlugin
	read       map[string]*plugins.PluginRevisionSpec // revisions that were read, keyed by the name of the PluginRevision

	// onProbation, begun and ended are only used while refreshing is held.
	onProbation map[string]*promotion // keyed by the name of the ReflectionPlugin
	begun       map[string]beginning  // keyed by the name of the ReflectionPlugin
	ended       []*promotion
	eased       func(kinds []string) // see OnEased; used while refreshing is held
}

// NewFollower returns a follower. It sends no requests. The caller must call Close.
func NewFollower(options Options) (*Follower, error) {
	options = options.withDefaults()
	config := rest.CopyConfig(options.Local)
	config.QPS = -1
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection for declared plugins, %w", err)
	}
	f := &Follower{
		options: options, log: options.Log, changed: make(chan struct{}, 1),
		known: map[string]*pluginState{}, reported: map[string]reported{}, others: map[string]plugins.VirtualNodePlugin{},
		rolledBack: map[string]occasion{}, read: map[string]*plugins.PluginRevisionSpec{},
	}
	if f.client, err = dynamic.NewForConfigAndClient(config, httpClient); err != nil {
		return nil, fmt.Errorf("creating a client for declared plugins, %w", err)
	}
	if f.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, httpClient); err != nil {
		return nil, fmt.Errorf("creating a discovery client for declared plugins, %w", err)
	}
	names, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating a metadata client for declared plugins, %w", err)
	}
	f.namespaces = newNamespaces(names)
	f.selectors.namespaces, f.selectors.next = f.namespaces, map[string]*selector{}
	if f.plugins, err = f.newInformer(pluginsResource, runtimecache.TransformStripManagedFields()); err != nil {
		return nil, err
	}
	f.revisions, err = f.newInformer(revisionsResource, f.shrinkRevision)
	return f, err
}

func (f *Follower) newInformer(resource schema.GroupVersionResource, transform cache.TransformFunc) (cache.SharedIndexInformer, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(f.client, resource, "", 0, cache.Indexers{}, nil).Informer()
	err := informer.SetTransform(transform)
	if err == nil {
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { f.refreshSoon() }, UpdateFunc: func(any, any) { f.refreshSoon() }, DeleteFunc: func(any) { f.refreshSoon() },
		})
	}
	if err != nil {
		return nil, fmt.Errorf("preparing the informer of %s, %w", resource.Resource, err)
	}
	return informer, nil
}

// OnEased sets a function that is called with the kinds of objects whose copies are held during a probation, after a
// user has permitted more removals, or shortened the probation. It must not block.
func (f *Follower) OnEased(eased func(kinds []string)) {
	f.refreshing.Lock()
	defer f.refreshing.Unlock()
	f.eased = eased
}

// refreshSoon makes Run install the set again.
func (f *Follower) refreshSoon() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Namespaces returns the labels of namespaces.
func (f *Follower) Namespaces() *Namespaces { return f.namespaces }

// Statuses returns the status of each active plugin in the chains after the last change. Revision is the revision that
// runs. This is an earlier one if the active one cannot be used, and it is empty if no revision runs. Callers must not
// modify the result.
func (f *Follower) Statuses() []source.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.statuses
}

// Lead starts to report states to the API server. It is called once, by the replica that is the leader.
func (f *Follower) Lead() {
	f.leads.Store(true)
	f.refreshSoon()
}

// Close ends the watch of namespaces, and releases the previous revisions. The chains must be closed after it.
func (f *Follower) Close() {
	f.namespaces.close()
	f.refreshing.Lock()
	defer f.refreshing.Unlock()
	for _, p := range f.onProbation {
		f.ended = append(f.ended, p)
	}
	f.onProbation = nil
	f.closeEndedProbations(context.Background())
}

// ReadPlugins reads and installs the active revisions. It returns when no object can be reflected without them any
// more, or returns the error of ctx.
func (f *Follower) ReadPlugins(ctx context.Context) error {
	began, said := f.options.Clock.Now(), ""
	for {
		active, err := f.readActive(ctx)
		if err == nil {
			f.options.WereRead.Store(true)
			f.installPlugins(ctx, active)
			return ctx.Err()
		}
		if f.isUnavailable(ctx, err, f.options.Clock.Since(began)) {
			f.unavailable = true
			return nil
		}
		if err.Error() != said {
			said = err.Error()
			f.log.Warn("Nothing is reflected before the declared plugins are read, retrying", "err", err)
			f.options.Waiting("the declared plugins are not read yet: " + said)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.options.Clock.After(f.options.RetryFirst):
		}
	}
}

// Run updates the chains when ReflectionPlugins change, until ctx ends. It is called once, after ReadPlugins.
func (f *Follower) Run(ctx context.Context) error {
	for f.unavailable {
		select {
		case <-ctx.Done():
			return nil
		case <-f.options.Clock.After(f.options.RecheckEvery):
		}
		active, err := f.readActive(ctx)
		if err == nil {
			f.unavailable = false
			f.options.WereRead.Store(true)
			f.log.Info("Declared plugins are available now")
			f.installPlugins(ctx, active)
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, informer := range []cache.SharedIndexInformer{f.plugins, f.revisions} {
		wg.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), f.plugins.HasSynced, f.revisions.HasSynced) {
		return nil
	}
	for {
		retry := f.refresh(ctx)
		var again <-chan time.Time
		if retry > 0 {
			again = f.options.Clock.After(retry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
		case <-again:
		}
	}
}

// refresh installs the set that the watches have reported, and returns the delay until the next attempt; 0 means never.
func (f *Follower) refresh(ctx context.Context) time.Duration {
	all, err := f.watchedPlugins()
	if err != nil {
		// The earlier set continues to run, because a plugin that cannot be decoded must not be left out.
		f.log.Error("The declared plugins stay as they are", "err", err)
		return f.options.RetryMost
	}
	active := f.selectActive(all, func(name string) (*plugins.PluginRevision, error) { return f.findRevision(ctx, name) })
	retry := f.installPlugins(ctx, active)
	if f.options.Changed != nil {
		f.options.Changed()
	}
	if ctx.Err() == nil && f.leads.Load() {
		retry = earlier(retry, f.reportStates(ctx, all))
	}
	return retry
}

// earlier returns the shorter of two delays. A delay of 0 means never.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func (f *Follower) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, f.options.CallTimeout)
}
