// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package shadowpod enforces, on the provider, the pods requested by consumers.
//
// A ShadowPod is a pod's spec in the provider's cluster. As long as it exists, the controller maintains its pod: it
// creates the pod from the spec, and recreates it when it is lost, whether or not the consumer is reachable. A
// finished pod never runs again, because its final phase is recorded in the ShadowPod before it can be deleted. A pod
// with another owner is never changed.
//
// A pod may finish, and be deleted, while no controller runs. Therefore a pod whose restartPolicy is not Always is
// created with a finalizer, like the pods of Jobs. The finalizer is removed when the final phase is recorded, when
// the ShadowPod no longer exists, or when the pod was deleted and has stopped without having finished. The finalizer
// costs one more write per pod, and delays the deletion of the pod while no controller manager runs. Most pods are
// always restarted and end only by failing as a whole (an eviction, a deadline). They have no finalizer. If such a
// pod failed and was deleted while no controller ran, it runs again.
//
// A pod that starts and runs costs two writes: its creation and, some seconds later, the phase Running in the status
// of its ShadowPod. The second write is delayed because it would slow down the start of many pods and no component
// waits for it: consumers read the pod itself, and only final phases from ShadowPods.
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
	"github.com/refract-project/refract/controllers/internal/ledger"
	"github.com/refract-project/refract/controllers/internal/memo"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/shadows"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/internal/podend"
)

// APIServerMapper determines the address at which the pods of this cluster reach the API server of another cluster.
// Without a network fabric, the address is the same in both clusters.
type APIServerMapper interface {
	// MapAPIServer returns the address that this cluster has to use for the address ip in the cluster origin.
	MapAPIServer(ctx context.Context, origin, ip string) (string, error)
}

const kind shadows.Kind = offloading.ShadowPodKind

// Options are the settings of the controller.
type Options struct {
	// Workers is the number of ShadowPods that are reconciled concurrently.
	Workers int
	// RecordAfter is the age of a pod at which its first phase is recorded. A final phase is recorded at once, even
	// if no other phase was recorded before.
	RecordAfter time.Duration
	// Clock returns the time.
	Clock clock.PassiveClock
	// APIServerMapper maps the addresses of host aliases for the consumer's API server. If it is nil, they stay
	// unchanged.
	APIServerMapper APIServerMapper
	// Policy decides which pods consumers may run in this cluster. If it is nil, all pods are allowed.
	Policy *tenancy.Policy
	// Quotas limits the resources of consumers. If it is nil, resources are not limited.
	Quotas *ledger.Ledger
	// HomeDomains are the domains of the DNS of the clusters of the consumers whose pods resolve the names of their own
	// cluster, by the IDs of the consumers.
	HomeDomains map[string]string
	// Version reads the version of the API server for messages. If it is nil, messages omit the version.
	Version func(context.Context) (string, error)
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller creates and updates the pods of ShadowPods.
type Controller struct {
	// client reads from the cache, and uncached from the API server.
	client   client.Client
	uncached client.Reader
	report   *report.Reporter
	options  Options

	// finished holds the final phases of pods, from the time they are observed until the cache shows them recorded.
	finished memo.Memo[finish]
	// recorded holds the last phase written, until the cache shows it.
	recorded memo.Memo[recording]
	// refused holds the patches of pods that the API server did not accept unchanged.
	refused memo.Memo[refusal]
	// invalid counts the writes that the API server rejected as invalid.
	invalid report.Refusals
	// baselines holds the last request for each pod that has no record in its annotations.
	baselines memo.Memo[baseline]
	// released holds the version of each pod whose finalizer was removed, until the cache shows a later version.
	released memo.Memo[string]
	// gone determines whether ShadowPods are gone.
	gone *shadows.Gone
	// ran holds, by name, the UID of the last ShadowPod whose pod was seen.
	ran memo.Memo[types.UID]
	// forbidden counts the attempts to create a pod that the API server forbade.
	forbidden memo.Memo[int]
	// brake limits fights with other clients that change or delete pods.
	brake *brake.Brake
}

// NewController returns a controller. c must read from a cache made with CacheOptions; live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	reporter := report.New(recorder)
	return &Controller{client: c, uncached: live, report: reporter, options: options, gone: shadows.NewGone(kind, live), brake: brake.New(corev1.SchemeGroupVersion.WithKind("Pod"), live, reporter, options.Clock)}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "shadowpod" }

// Reconcile creates or updates the pod of the ShadowPod.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	shadow := kind.New()
	err := c.client.Get(ctx, request.NamespacedName, shadow)
	if apierrors.IsNotFound(err) {
		c.forget(request.NamespacedName)
		c.brake.Forget(request.NamespacedName)
		unseen, unread := c.endReservation(ctx, request.NamespacedName)
		wait, err := c.endOrphan(ctx, request.NamespacedName)
		if wait == 0 || unseen > 0 && unseen < wait {
			wait = unseen
		}
		return reconcile.Result{RequeueAfter: wait}, errors.Join(unread, err)
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

// enforce creates or updates the pod of shadow. It must not modify shadow, which is shared with the cache. It returns
// the delay until the next reconciliation; 0 means that it waits for an event.
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
		wait, err := c.endReservation(ctx, key)
		return wait, errors.Join(err, c.release(ctx, pod))
	case shadow.GetDeletionTimestamp() != nil:
		return 0, c.release(ctx, pod)
	}
	if seen, ok := c.finished.Get(key); ok && seen.shadow == shadow.GetUID() {
		return 0, c.finish(ctx, shadow, pod, seen.phase)
	}
	switch {
	case pod == nil:
		if outdated, err := c.isOutdated(ctx, shadow); outdated || err != nil {
			return outdatedRetryDelay, err
		}
		if err := c.brake.MayCreate(ctx, shadow, createAction); err != nil {
			return 0, err
		}
		return c.create(ctx, shadow)
	case !metav1.IsControlledBy(pod, shadow):
		return 0, c.yield(ctx, shadow, pod)
	}
	return c.follow(ctx, shadow, pod)
}

// outdatedRetryDelay is the delay until a ShadowPod that exists only in the cache is reconciled again.
const outdatedRetryDelay = time.Second

// isOutdated reports whether the ShadowPod no longer exists in the API server, or was replaced by another object with
// the same name. It is called before a pod is recreated: after etcd was restored, pods are gone at once, whereas the
// cache shows the former ShadowPods for some seconds. A pod that is created for such a ShadowPod would start, and
// then be deleted by the garbage collector because its owner does not exist.
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

// follow synchronizes an existing pod of this controller with its ShadowPod. The phase is recorded first, because it
// could otherwise be lost permanently.
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
		// The pod is terminating. When it is gone, a watch event triggers the reconciliation that recreates the pod.
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

// hashToRecord returns the hash to record for the pod's spec. Once the pod is up to date with the ShadowPod's spec, it
// is the hash of this spec. The cache holds the spec as text.
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

// sooner returns the shorter of two delays. 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// noteRan records that the pod of a ShadowPod exists.
func (c *Controller) noteRan(shadow *unstructured.Unstructured) {
	key := client.ObjectKeyFromObject(shadow)
	if ran, known := c.ran.Get(key); !known || ran != shadow.GetUID() {
		c.ran.Set(key, shadow.GetUID())
	}
}

// finish records the final phase of the pod and then removes its finalizer. pod is nil if the pod is gone.
func (c *Controller) finish(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod, phase corev1.PodPhase) error {
	if err := c.record(ctx, shadow, phase, recordedHash(shadow)); err != nil {
		return err
	}
	return c.release(ctx, pod)
}

// Enforces returns an empty list of the enforced kind and a filter for ShadowPods. Metrics use both.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return kind.NewList(), func(client.Object) bool { return true }
}

// Quarantined returns the number of pods that are left unchanged for a while because another client keeps reverting
// them.
func (c *Controller) Quarantined() int { return c.brake.Quarantined() }

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	return c.watch(mgr)
}

// partial returns an object with the given kind and key for reading only the metadata.
func partial(gvk schema.GroupVersionKind, key types.NamespacedName) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	object.SetGroupVersionKind(gvk)
	return object
}
