// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package shadowpod enforces, on the provider, the pods requested by consumers.
//
// A ShadowPod is a pod's spec in the provider's cluster. As long as it exists, the controller maintains its pod: it
// creates the pod from the spec, and recreates it when it is lost, whether or not the consumer is reachable. A
// finished pod never runs again: the final phase is recorded in the ShadowPod first. A pod with another owner is
// never changed.
//
// A pod may finish, and be deleted, while no controller runs. Therefore a pod whose restartPolicy is not Always is
// created with a finalizer, like the pods of Jobs. It is removed when the final phase is recorded, when the ShadowPod
// to record it in no longer exists, or when the pod was deleted and has stopped without having finished. The cost is
// one more write per pod, and that its deletion waits while no controller manager runs. Pods that are always
// restarted, which are most, end only by failing as a whole (an eviction, a deadline). They have no finalizer, and
// one that failed and was deleted while no controller ran is run again.
//
// A pod that starts and runs costs two writes: its creation and, some seconds later, the phase Running in the status
// of its ShadowPod. The latter is delayed because no component waits for it (consumers read the pod itself and, of
// ShadowPods, final phases only), and it would slow down the start of many pods.
package shadowpod

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/memo"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/shadows"
	"github.com/refract-project/refract/controllers/quota"
	"github.com/refract-project/refract/controllers/tenancy"
	"github.com/refract-project/refract/internal/podend"
)

// APIServerMapper returns the address at which the pods of this cluster reach the
// API server of another one. Without a network fabric the address is the same.
type APIServerMapper interface {
	// MapAPIServer returns the address here of ip in the cluster origin.
	MapAPIServer(ctx context.Context, origin, ip string) (string, error)
}

const kind shadows.Kind = offloading.ShadowPodKind

// Options are the settings of the controller.
type Options struct {
	// Workers is how many ShadowPods are worked on at once.
	Workers int
	// RecordAfter is the age of a pod from which on a phase that is not final is
	// recorded for the first time. A pod that finishes earlier goes without.
	RecordAfter time.Duration
	// Clock returns the time.
	Clock clock.PassiveClock
	// APIServerMapper maps the addresses of host aliases for the consumer's API
	// server; nil leaves them as they are.
	APIServerMapper APIServerMapper
	// Policy is what consumers may run here; nil allows everything.
	Policy *tenancy.Policy
	// Quotas say how much of it; nil limits nothing.
	Quotas *quota.Ledger
	// Version reads the version of the API server, for messages; nil leaves it out.
	Version func(context.Context) (string, error)
	// Failed is called with the errors of reconciliations, unless it is nil.
	Failed func(error)
}

// Controller enforces the pods of ShadowPods.
type Controller struct {
	// client reads from the cache, uncached from the API server.
	client   client.Client
	uncached client.Reader
	report   *report.Reporter
	options  Options

	// finished remembers phases after which a pod never runs again, from when
	// they are seen until the cache shows them recorded.
	finished memo.Memo[finish]
	// recorded remembers the last phase written, until the cache shows it.
	recorded memo.Memo[recording]
	// refused remembers what of a pod the API server does not take as it is sent.
	refused memo.Memo[refusal]
	// invalid counts how often the API server found what was written invalid.
	invalid report.Refusals
	// baselines remembers what was asked of pods without a record of it.
	baselines memo.Memo[baseline]
	// released remembers the version of the pod that was let go last, until the cache shows a later one.
	released memo.Memo[string]
	// gone knows the ShadowPods that are gone.
	gone *shadows.Gone
	// ran remembers the ShadowPod of which a pod was there last.
	ran memo.Memo[types.UID]
	// forbidden counts attempts to create a pod that the API server forbade.
	forbidden memo.Memo[int]
	// brake ends fights about pods.
	brake *brake.Brake
}

// NewController returns a controller that works through c, which must read
// from a cache made with CacheOptions, and live, which must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	reporter := report.New(recorder)
	return &Controller{client: c, uncached: live, report: reporter, options: options, gone: shadows.NewGone(kind, live), brake: brake.New(corev1.SchemeGroupVersion.WithKind("Pod"), live, reporter, options.Clock)}
}

// Name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "shadowpod" }

// Reconcile creates or updates the pod of the ShadowPod.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	shadow := kind.New()
	err := c.client.Get(ctx, request.NamespacedName, shadow)
	if apierrors.IsNotFound(err) {
		c.forget(request.NamespacedName)
		c.forgetQuota(request.NamespacedName)
		c.brake.Forget(request.NamespacedName)
		wait, err := c.endOrphan(ctx, request.NamespacedName)
		return reconcile.Result{RequeueAfter: wait}, err
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("getting ShadowPod %s, %w", request.NamespacedName, err)
	}
	wait, err := brake.Wait(c.enforce(ctx, shadow))
	return reconcile.Result{RequeueAfter: wait}, err
}

func (c *Controller) forget(key types.NamespacedName) {
	c.finished.Drop(key)
	c.ran.Drop(key)
	c.recorded.Drop(key)
	c.refused.Drop(key)
	c.invalid.Drop(key)
	c.baselines.Drop(key)
	c.forbidden.Drop(key)
	c.report.Clear(key)
}

// enforce must not change shadow: it is shared with the cache. It returns after
// which time to reconcile again, 0 for not before something happens.
func (c *Controller) enforce(ctx context.Context, shadow *unstructured.Unstructured) (time.Duration, error) {
	key := client.ObjectKeyFromObject(shadow)
	pod, err := c.pod(ctx, key)
	switch {
	case err != nil:
		return 0, err
	case shadows.WaitsForDependents(shadow):
		return c.endDependent(ctx, shadow, pod)
	case podend.Finished(recordedPhase(shadow)):
		c.forget(key)
		return 0, c.release(ctx, pod)
	case shadow.GetDeletionTimestamp() != nil:
		return 0, c.release(ctx, pod)
	}
	if seen, ok := c.finished.Get(key); ok && seen.shadow == shadow.GetUID() {
		return 0, c.finish(ctx, shadow, pod, seen.phase)
	}
	switch {
	case pod == nil:
		if outdated, err := c.isOutdated(ctx, shadow); outdated || err != nil {
			return outdatedRetry, err
		}
		if err := c.brake.MayCreate(ctx, shadow, createAction); err != nil {
			return 0, err
		}
		if err := c.create(ctx, shadow); !errors.Is(err, errOverQuota) {
			return 0, err
		}
		return quotaRetry, nil // another owner's pod may end, or the Quota be changed
	case !metav1.IsControlledBy(pod, shadow):
		return 0, c.yield(ctx, shadow, pod)
	}
	return c.follow(ctx, shadow, pod)
}

// outdatedRetry is when a ShadowPod is looked at again that the cache shows and the API server does not have.
const outdatedRetry = time.Second

// isOutdated reports whether there is another ShadowPod by now, or none. It is asked when a pod is to be created again: after etcd was
// restored, pods are gone at once, and the cache shows the ShadowPods of before for some seconds. A pod of one of these would start
// and be deleted by the garbage collector, because it has no owner.
func (c *Controller) isOutdated(ctx context.Context, shadow *unstructured.Unstructured) (bool, error) {
	key := client.ObjectKeyFromObject(shadow)
	if ran, known := c.ran.Get(key); !known || ran != shadow.GetUID() {
		return false, nil
	}
	found := partial(shadow.GroupVersionKind(), key)
	err := c.uncached.Get(ctx, key, found)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("getting ShadowPod %s, %w", key, err)
	}
	return err != nil || found.UID != shadow.GetUID(), nil
}

// follow keeps an existing pod of ours and its ShadowPod in step. The phase
// comes first: it is the only part that could be lost forever.
func (c *Controller) follow(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod) (time.Duration, error) {
	c.noteRan(shadow)
	if phase := podend.FinalPhase(pod); phase != "" {
		c.finished.Set(client.ObjectKeyFromObject(shadow), finish{shadow: shadow.GetUID(), phase: phase})
		return 0, c.finish(ctx, shadow, pod, phase)
	}
	switch {
	case hasStopped(pod):
		return 0, c.release(ctx, pod)
	case pod.DeletionTimestamp != nil:
		// It is on its way out; the Event of its deletion brings us back here
		// to create the next one.
		return 0, nil
	}
	wait := c.early(shadow, pod)
	if wait == 0 {
		hash, err := c.hashToRecord(ctx, shadow, pod)
		if err != nil {
			return 0, err
		}
		if err := c.record(ctx, shadow, pod.Status.Phase, hash); err != nil {
			return 0, err
		}
	}
	retry, err := c.align(ctx, shadow, pod)
	return sooner(wait, retry), err
}

// hashToRecord returns the hash of the spec that the pod has: of the present one once the pod has it. The cache has that as text.
func (c *Controller) hashToRecord(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod) (string, error) {
	if shadow.GetGeneration() <= 1 || isOutdated(shadow, pod) {
		return recordedHash(shadow), nil
	}
	whole, err := kind.Whole(ctx, c.uncached, shadow)
	if err != nil || whole == nil || isOutdated(whole, pod) {
		return recordedHash(shadow), err
	}
	return specHash(whole), nil
}

// sooner returns the shorter of two times after which to reconcile again, of which 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// noteRan remembers that there is a pod.
func (c *Controller) noteRan(shadow *unstructured.Unstructured) {
	key := client.ObjectKeyFromObject(shadow)
	if ran, known := c.ran.Get(key); !known || ran != shadow.GetUID() {
		c.ran.Set(key, shadow.GetUID())
	}
}

// finish records how the pod has ended, and then lets it go. pod is nil when it
// is gone.
func (c *Controller) finish(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod, phase corev1.PodPhase) error {
	if err := c.record(ctx, shadow, phase, recordedHash(shadow)); err != nil {
		return err
	}
	return c.release(ctx, pod)
}

// Enforces returns the objects that the controller enforces, for metrics: ShadowPods.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return kind.NewList(), func(client.Object) bool { return true }
}

// Quarantined counts the pods that another client fights about, so that they are left alone for a while.
func (c *Controller) Quarantined() int { return c.brake.Quarantined() }

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	return c.watch(mgr)
}

// partial names an object of which nothing but the metadata is asked for.
func partial(gvk schema.GroupVersionKind, key types.NamespacedName) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	object.SetGroupVersionKind(gvk)
	return object
}
