// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugin fetches, verifies, tests and stores the modules of ReflectionPlugins, and decides which revision is active.
//
// A reconciliation takes these steps, each with a condition:
//
//   - Fetched: the module is read from its source (fetch.go).
//   - Verified: its signature satisfies the policy of the installation (verify.go).
//   - Accepted: it loads with the settings (accept.go), and is stored as a PluginRevision with PluginModules, which never change (store.go).
//   - Rehearsed: the virtual nodes have reported its effect, within the limits of the rollout (rehearsal.go).
//   - Ready: the virtual nodes run the active revision (ready.go).
//
// A stored module is not fetched again. Only promote and rollBack set the active revision (promote.go, rollback.go), so a failing source or a refused
// module does not change it.
//
// A failed fetch is retried with increasing delays, any number of times. The condition contains the time of the next
// attempt. Revisions beyond the history limit are deleted, then the PluginModules without a revision, and the reports
// of deleted virtual nodes.
package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/pluginsource"
)

// Options are the settings of the controller.
type Options struct {
	// Enabled determines whether the controller is started.
	Enabled bool
	// Namespace is the namespace of the installation. It contains the ConfigMaps and Secrets that sources refer to.
	Namespace string
	// Sources configures fetches.
	Sources pluginsource.Options
	// TrustPolicy is the path of the file with the policy of signatures. If it is empty, signature.DefaultPolicy
	// applies. The file is read before each verification.
	TrustPolicy string
	// Recheck is the interval between reconciliations without a change. They are needed because no watch reports
	// changes to the signature policy or to the served kinds. The default is 5 minutes.
	Recheck time.Duration
	// Deadline limits the time of a reconciliation, including the fetch and the compilation of a large module. The
	// default is 8 minutes.
	Deadline time.Duration
	// Mapper finds the kinds that this cluster serves.
	Mapper apimeta.RESTMapper
	// Clock returns the time.
	Clock clock.PassiveClock
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

const (
	// parallel is the number of plugins that are reconciled concurrently. A slow server can occupy a worker for the
	// whole time that a fetch may take, but maxContacts leaves a worker for decisions about other plugins.
	parallel    = 4
	maxContacts = parallel - 1
	// reconcileTimeout limits the time of a reconciliation, including the fetch and the compilation of a large module.
	reconcileTimeout = 8 * time.Minute
	// statusTimeout limits the write of the status, which is attempted even if a reconciliation took too long.
	statusTimeout = 10 * time.Second
	// defaultRecheckInterval is how often a plugin is reconciled without an event. With a longer interval, the deletion
	// of a stored module is noticed later.
	defaultRecheckInterval = 5 * time.Minute
)

// Controller reconciles ReflectionPlugins.
type Controller struct {
	client  client.Client
	live    client.Reader
	report  *report.Reporter
	options Options

	loader loader
	// contacts limits the number of plugins that wait for a server.
	contacts semaphore
	// resolved contains the time at which the tag of each plugin was last resolved. refused contains the last module of
	// each plugin that was not accepted. The keys are names of plugins.
	resolved, refused sync.Map
	// fetched contains the modules that wait until they can be stored.
	fetched unstoredModules
	// checked contains the digests of the stored modules whose content was compared with the digest. The value is the
	// time at which all parts of the module existed.
	checked sync.Map
	// fetching is held from the fetch of a module until the module is stored or refused, because several modules of the
	// maximum size would need much memory.
	fetching semaphore
	// storing is held until the revision of a stored module exists, and while unused modules are deleted.
	storing sync.Mutex
	// promoting is held by the plugin whose candidate becomes active.
	promoting turn
	// unused is set when there may be modules that no revision names.
	unused atomic.Bool
}

// NewController returns a controller that reads and writes through c. live must not read from a cache.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	options.Recheck, options.Deadline = cmp.Or(options.Recheck, defaultRecheckInterval), cmp.Or(options.Deadline, reconcileTimeout)
	controller := &Controller{client: c, live: live, report: report.New(recorder), options: options, fetching: make(semaphore, 1), contacts: make(semaphore, maxContacts)}
	controller.unused.Store(true)
	return controller
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "plugin" }

// Enforces returns the objects that the controller reconciles, for metrics.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &plugins.ReflectionPluginList{}, func(client.Object) bool { return true }
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	configMaps, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{c.options.Namespace: {}},
	})
	if err != nil {
		return fmt.Errorf("creating the cache of ConfigMaps, %w", err)
	}
	if err := mgr.Add(configMaps); err != nil {
		return fmt.Errorf("adding the cache of ConfigMaps, %w", err)
	}
	if err := mgr.Add(&c.loader); err != nil {
		return fmt.Errorf("adding the host of plugins, %w", err)
	}
	// Only metadata is cached. The content is read when it is needed.
	configMap := &metav1.PartialObjectMetadata{}
	configMap.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	options := workers.Options(parallel)
	options.ReconciliationTimeout = c.options.Deadline
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(options).
		For(&plugins.ReflectionPlugin{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&plugins.PluginRevision{}, handler.EnqueueRequestsFromMapFunc(c.pluginOf), builder.WithPredicates(predicate.Funcs{
			// Revisions that exist at the start may belong to a plugin that was deleted while no controller manager was
			// running.
			UpdateFunc: isReport,
			DeleteFunc: func(event.DeleteEvent) bool { c.unused.Store(true); return true },
		})).
		Watches(&plugins.ReflectionPlugin{}, handler.EnqueueRequestsFromMapFunc(c.listCandidates), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: isActivation,
		})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.listAll), builder.WithPredicates(nodeChanges)).
		Watches(&offloading.VirtualNode{}, handler.EnqueueRequestsFromMapFunc(c.listAll), builder.WithPredicates(virtualNodeChanges)).
		WatchesRawSource(source.Kind(configMaps, configMap, handler.TypedEnqueueRequestsFromMapFunc(c.pluginsFrom))).
		Complete(report.Failures(c, c.options.Failed))
}

// isReport reports whether an update to a PluginRevision has changed the entries of virtual nodes. No other field of a
// PluginRevision changes.
func isReport(e event.UpdateEvent) bool {
	before, isRevision := e.ObjectOld.(*plugins.PluginRevision)
	after, isStillRevision := e.ObjectNew.(*plugins.PluginRevision)
	return !isRevision || !isStillRevision || !equality.Semantic.DeepEqual(before.Status, after.Status)
}

// isActivation reports whether an update to a ReflectionPlugin has changed its active revision.
func isActivation(e event.UpdateEvent) bool {
	before, isPlugin := e.ObjectOld.(*plugins.ReflectionPlugin)
	after, isStillPlugin := e.ObjectNew.(*plugins.ReflectionPlugin)
	return isPlugin && isStillPlugin && before.Status.ActiveRevision != after.Status.ActiveRevision
}

// pluginOf returns a request for the plugin of a revision.
func (c *Controller) pluginOf(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.(*plugins.PluginRevision).Spec.Plugin}}}
}

// pluginsFrom returns requests for the plugins whose source is the ConfigMap.
func (c *Controller) pluginsFrom(ctx context.Context, configMap *metav1.PartialObjectMetadata) (requests []reconcile.Request) {
	all := &plugins.ReflectionPluginList{}
	if err := c.client.List(ctx, all); err != nil {
		return nil // this cannot happen, because a filled cache returns no errors
	}
	for i := range all.Items {
		if from := all.Items[i].Spec.Source.ConfigMap; from != nil && from.Name == configMap.Name {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

// Reconcile performs the steps for a plugin until a step fails or has to wait, and writes the status.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	before := &plugins.ReflectionPlugin{}
	err := c.client.Get(ctx, request.NamespacedName, before)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if err != nil || before.DeletionTimestamp != nil {
		c.report.Clear(request.NamespacedName)
		c.forget(request.Name)
		if err != nil {
			err = c.collectOrphans(ctx, request.Name)
		}
		return reconcile.Result{}, errors.Join(err, c.collectModules(ctx))
	}
	after := before.DeepCopy()
	// Rollbacks are processed first. The method advance may fetch a module for a long time, and virtual nodes that
	// still run a rolled-back revision must not wait for it.
	isChanged, err := c.followRollback(ctx, after)
	if err != nil {
		return reconcile.Result{}, err
	}
	if isChanged {
		if err := c.writeStatus(ctx, before, after); err != nil {
			return reconcile.Result{}, err
		}
		c.reportActivation(before, after)
		before = after.DeepCopy()
	}
	defer c.promoting.pass(request.Name)
	again, err := c.advance(ctx, after)
	if writeErr := c.writeStatus(ctx, before, after); writeErr != nil {
		return reconcile.Result{}, errors.Join(err, writeErr)
	}
	c.reportActivation(before, after)
	return reconcile.Result{RequeueAfter: again}, errors.Join(err, c.pruneEntries(ctx, after), c.collectRevisions(ctx, after), c.collectModules(ctx))
}

// forget drops the state in memory of a plugin that was deleted.
func (c *Controller) forget(name string) {
	c.resolved.Delete(name)
	c.refused.Delete(name)
	c.fetched.drop(name)
}

// advance sets the status of a plugin, and returns the time until its next reconciliation.
func (c *Controller) advance(ctx context.Context, p *plugins.ReflectionPlugin) (again time.Duration, err error) {
	p.Status.ObservedGeneration = p.Generation
	again = c.options.Recheck
	accepted := ""
	if !p.Spec.Paused && p.Spec.Revision == "" {
		accepted, again, err = c.follow(ctx, p)
	}
	wait, promoteErr := c.promote(ctx, p, accepted)
	if wait > 0 {
		again = min(again, wait)
	}
	return again, errors.Join(err, promoteErr)
}

// writeStatus patches the status if it has changed. The patch has a deadline of its own, so that the time of the next
// attempt is recorded even if a fetch has used up the deadline of the reconciliation.
func (c *Controller) writeStatus(ctx context.Context, before, after *plugins.ReflectionPlugin) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusTimeout)
	defer cancel()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.client.Status().Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("patching the status of ReflectionPlugin %s, %w", before.Name, err)
	}
	return nil
}
