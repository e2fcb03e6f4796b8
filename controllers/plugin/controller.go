// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugin fetches, verifies, tests and stores the modules of ReflectionPlugins.
//
// A reconciliation goes through these steps, each with a condition: fetch the module from its source, verify its signature by the policy of the installation,
// accept it by loading it with its settings, store it. The result is a PluginRevision, whose module is in PluginModules; neither is ever
// changed. A module that is stored is not fetched again. Only promote sets the active revision, so a source that fails, or a module that is not
// accepted, leaves it as it is.
//
// Sources are tried again for ever, with increasing delays; the condition says when. Revisions beyond the history limit are deleted, and then
// the PluginModules that no revision names.
package plugin

import (
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

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/pluginsource"
)

// Options are the settings of the controller.
type Options struct {
	// Enabled starts the controller.
	Enabled bool
	// Namespace of the installation, with the ConfigMaps and Secrets that sources name.
	Namespace string
	// Sources configures fetches.
	Sources pluginsource.Options
	// TrustPolicy is the file with the policy of signatures; empty is signature.DefaultPolicy. It is read before each verification.
	TrustPolicy string
	// Recheck is how often what no watch reports is looked at: the policy, and the kinds that this cluster serves. 0 is 5 minutes.
	Recheck time.Duration
	// Mapper knows the kinds that this cluster serves.
	Mapper apimeta.RESTMapper
	// Clock returns the time.
	Clock clock.PassiveClock
	// Failed is called with the errors of reconciliations, unless it is nil.
	Failed func(error)
}

const (
	// parallel is how many plugins are reconciled at once: a slow server occupies a worker for the budget of a fetch.
	parallel = 4
	// deadline limits a reconciliation, with its fetch and the compilation of a large module.
	deadline       = 8 * time.Minute
	statusTimeout  = 30 * time.Second
	defaultRecheck = 5 * time.Minute
)

// Controller reconciles ReflectionPlugins.
type Controller struct {
	client  client.Client
	live    client.Reader
	report  *report.Reporter
	options Options

	loader loader
	// resolved has the times at which tags were resolved, refused the modules that were not accepted, both by the name of the plugin.
	resolved, refused sync.Map
	// fetched has the modules that are to be stored, by the name of the plugin; checked has the digests of stored modules whose content is right.
	fetched, checked sync.Map
	// fetching is held from the fetch of a module until it is stored or refused: several of the maximum size would take much memory.
	fetching semaphore
	// storing is held while a module is stored, until its revision exists, and while unused modules are deleted.
	storing sync.Mutex
	// unused is set when there may be modules that no revision names.
	unused atomic.Bool
}

// NewController returns a controller that works through c; live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	if options.Recheck == 0 {
		options.Recheck = defaultRecheck
	}
	controller := &Controller{client: c, live: live, report: report.New(recorder), options: options, fetching: make(semaphore, 1)}
	controller.unused.Store(true)
	return controller
}

// Name of the controller in logs, metrics and Events.
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
	// Only names and versions: the content is read when it is needed.
	configMap := &metav1.PartialObjectMetadata{}
	configMap.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	options := workers.Options(parallel)
	options.ReconciliationTimeout = deadline
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(options).
		For(&plugins.ReflectionPlugin{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&plugins.PluginRevision{}, handler.EnqueueRequestsFromMapFunc(c.pluginOf), builder.WithPredicates(predicate.Funcs{
			// Those that are there at the start may be of a plugin that was deleted meanwhile.
			CreateFunc: func(e event.CreateEvent) bool { return e.IsInInitialList }, UpdateFunc: func(event.UpdateEvent) bool { return false },
			DeleteFunc: func(event.DeleteEvent) bool { c.unused.Store(true); return true },
		})).
		WatchesRawSource(source.Kind(configMaps, configMap, handler.TypedEnqueueRequestsFromMapFunc(c.pluginsFrom))).
		Complete(report.Failures(c, c.options.Failed))
}

// pluginOf returns the plugin of a revision.
func (c *Controller) pluginOf(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.(*plugins.PluginRevision).Spec.Plugin}}}
}

// pluginsFrom returns the plugins whose source is a ConfigMap.
func (c *Controller) pluginsFrom(ctx context.Context, configMap *metav1.PartialObjectMetadata) (requests []reconcile.Request) {
	all := &plugins.ReflectionPluginList{}
	if err := c.client.List(ctx, all); err != nil {
		return nil // the cache always lists
	}
	for i := range all.Items {
		if from := all.Items[i].Spec.Source.ConfigMap; from != nil && from.Name == configMap.Name {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

// Reconcile takes a plugin as far as it gets.
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
	again, err := c.advance(ctx, after)
	if writeErr := c.writeStatus(ctx, before, after); writeErr != nil {
		return reconcile.Result{}, errors.Join(err, writeErr)
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(err, c.collectRevisions(ctx, after), c.collectModules(ctx))
}

// forget drops what is remembered about a plugin that is gone.
func (c *Controller) forget(name string) {
	c.resolved.Delete(name)
	c.refused.Delete(name)
	c.fetched.Delete(name)
}

// advance changes the status of a plugin, and returns after which time to look again.
func (c *Controller) advance(ctx context.Context, p *plugins.ReflectionPlugin) (again time.Duration, err error) {
	p.Status.ObservedGeneration = p.Generation
	again = c.options.Recheck
	isAccepted := false
	if !p.Spec.Paused && p.Spec.Revision == "" {
		isAccepted, again, err = c.follow(ctx, p)
	}
	promoteErr := c.promote(ctx, p, isAccepted)
	return again, errors.Join(err, promoteErr)
}

// writeStatus patches the status if it has changed, also when the time of the reconciliation is over: the status says when to try again.
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
