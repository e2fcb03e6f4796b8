// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	runtimecache "sigs.k8s.io/controller-runtime/pkg/cache"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/admission"
)

// workers is the number of ReflectedResources that are reconciled at the same time. With a single worker, a slow
// provider would also delay work that does not need the provider.
const workers = 4

// Options are the options of a Follower. Local, Remote, the cluster IDs, NodeName and Engine are required.
type Options struct {
	Local, Remote   *rest.Config // not modified; client-side throttling is disabled in copies of them
	LocalClusterID  string
	RemoteClusterID string
	NodeName        string // name of the virtual node, and of its entry in the status
	VirtualNode     string // name of the VirtualNode; empty if it is equal to NodeName

	Engine Engine
	Chains Chains // plugin chains of the kinds; if nil, objects are reflected unchanged

	// Events writes Events about ReflectedResources. If it is nil, no Events are written.
	Events record.EventRecorder

	// RolePrefix is the prefix of this installation's role names in messages. If it is empty, the default of package
	// rbac is used.
	RolePrefix   string
	CallTimeout  time.Duration // timeout of each API call; 0 means 10 s
	RetryFirst   time.Duration // first delay before a missing requirement is checked again; 0 means 5 s
	RetryMost    time.Duration // maximum of this delay; 0 means 2 min
	RecheckEvery time.Duration // interval between checks of a running reflection; 0 means 10 min

	Log   *slog.Logger     // if it is nil, slog.Default() is used
	Clock clock.WithTicker // if it is nil, the real clock is used
}

// Defaults of CallTimeout, RetryFirst, RetryMost and RecheckEvery in Options.
const (
	defaultCallTimeout     = 10 * time.Second
	defaultRetryDelay      = 5 * time.Second
	defaultMaxRetryDelay   = 2 * time.Minute
	defaultRecheckInterval = 10 * time.Minute
)

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{{&o.CallTimeout, defaultCallTimeout}, {&o.RetryFirst, defaultRetryDelay}, {&o.RetryMost, defaultMaxRetryDelay}, {&o.RecheckEvery, defaultRecheckInterval}} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	if o.VirtualNode == "" {
		o.VirtualNode = o.NodeName
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

func (o Options) validateOptions() error {
	var faults []error
	for what, missing := range map[string]bool{
		"client configurations of both clusters": o.Local == nil || o.Remote == nil,
		"the ids of both clusters":               o.LocalClusterID == "" || o.RemoteClusterID == "",
		"the name of the virtual node":           o.NodeName == "",
		"the reflection engine":                  o.Engine == nil,
	} {
		if missing {
			faults = append(faults, fmt.Errorf("%s are missing", what))
		}
	}
	return errors.Join(faults...)
}

// Follower reconciles ReflectedResources. It is safe for concurrent use.
type Follower struct {
	options       Options
	log           *slog.Logger
	local, remote *side
	informer      cache.SharedIndexInformer
	queue         workqueue.TypedRateLimitingInterface[string]
	denials       admission.DenialEvents // reports denied writes to the status of a ReflectedResource

	mu       sync.Mutex
	running  map[string]plan     // keyed by the name of the ReflectedResource
	reported map[string]reported // keyed by the name of the ReflectedResource
	// looks contains the functions that cancel running reconciliations, keyed by the name of the ReflectedResource.
	looks            map[string]context.CancelFunc
	remoteNamespaces map[string]string // offloaded namespaces at the last check
}

// New returns a Follower. It sends no requests.
func New(options Options) (*Follower, error) {
	options = options.withDefaults()
	if err := options.validateOptions(); err != nil {
		return nil, fmt.Errorf("configuring the reflection of further resources, %w", err)
	}
	f := &Follower{options: options, log: options.Log, running: map[string]plan{}, reported: map[string]reported{},
		looks: map[string]context.CancelFunc{}}
	var err error
	if f.local, err = newSide(options.Local, options.LocalClusterID, false, options); err != nil {
		return nil, err
	}
	if f.remote, err = newSide(options.Remote, options.RemoteClusterID, true, options); err != nil {
		return nil, err
	}
	f.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](options.RetryFirst, options.RetryMost),
		workqueue.TypedRateLimitingQueueConfig[string]{Clock: options.Clock})
	f.informer = dynamicinformer.NewFilteredDynamicInformer(f.local.dynamic, pluginsv1alpha1.ReflectedResourceGVR, "", 0, cache.Indexers{}, nil).Informer()
	if err := f.informer.SetTransform(runtimecache.TransformStripManagedFields()); err != nil {
		return nil, fmt.Errorf("preparing the informer of ReflectedResources, %w", err)
	}
	_, err = f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { f.onChange(nil, o) },
		UpdateFunc: func(old, o any) { f.onChange(old, o) },
		DeleteFunc: func(o any) { f.onChange(nil, o) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching ReflectedResources, %w", err)
	}
	return f, nil
}

// onChange reconciles a ReflectedResource at once after a change, and resets its retries. Changes of the status are
// ignored, because every virtual kubelet writes its own entry to the status.
func (f *Follower) onChange(before, object any) {
	old, _ := before.(metav1.Object)
	now, _ := object.(metav1.Object)
	if old != nil && now != nil && old.GetUID() == now.GetUID() && old.GetGeneration() == now.GetGeneration() {
		return
	}
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		f.reconcileSoon(name)
	}
}

// reconcileSoon reconciles a ReflectedResource at once and resets its retries. A reconciliation that is already running
// is canceled, because it may be waiting for an unresponsive provider and does not consider the change.
func (f *Follower) reconcileSoon(name string) {
	f.mu.Lock()
	if end := f.looks[name]; end != nil {
		end()
	}
	f.mu.Unlock()
	f.queue.Forget(name)
	f.queue.Add(name)
}

// Run reconciles ReflectedResources until ctx ends, and returns when all workers have returned. The reflections
// continue until the engine ends. Before it starts, Run waits until ReflectedResources are defined and can be read, and
// until the engine knows the offloaded namespaces. It may be called once.
func (f *Follower) Run(ctx context.Context) error {
	if !f.awaitOwn(ctx) {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-f.options.Engine.NamespacesKnown():
	}
	defer f.options.Engine.SubscribeNamespaces(f.namespacesChanged)()
	f.namespacesChanged()
	var wg sync.WaitGroup
	wg.Go(func() { f.informer.RunWithContext(ctx) })
	for _, s := range []*side{f.local, f.remote} {
		wg.Go(func() { f.watchDefinitions(ctx, s) })
	}
	if cache.WaitForCacheSync(ctx.Done(), f.informer.HasSynced) {
		for range workers {
			wg.Go(func() { f.processQueue(ctx) })
		}
	}
	<-ctx.Done()
	f.queue.ShutDown()
	wg.Wait()
	return nil
}

func (f *Follower) processQueue(ctx context.Context) {
	for {
		name, shutdown := f.queue.Get()
		if shutdown {
			return
		}
		f.scheduleNext(name, f.reconcileCancelable(ctx, name))
		f.queue.Done(name)
	}
}

// reconcileCancelable reconciles a ReflectedResource with a context that reconcileSoon cancels if the resource must
// be reconciled again.
func (f *Follower) reconcileCancelable(ctx context.Context, name string) again {
	ctx, end := context.WithCancel(ctx)
	defer end()
	f.mu.Lock()
	f.looks[name] = end
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.looks, name)
	}()
	return f.reconcileResource(ctx, name)
}

// namespacesChanged reconciles all ReflectedResources after a change of the offloaded namespaces, because permissions
// may differ between namespaces.
func (f *Follower) namespacesChanged() {
	f.mu.Lock()
	now := f.options.Engine.Namespaces()
	changed := !maps.Equal(now, f.remoteNamespaces)
	f.remoteNamespaces = now
	f.mu.Unlock()
	if !changed {
		return
	}
	f.local.reviews.dropOthers(sets.KeySet(now))
	f.remote.reviews.dropOthers(sets.New(slices.Collect(maps.Values(now))...))
	for _, name := range f.informer.GetStore().ListKeys() {
		f.reconcileSoon(name)
	}
}
