// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodefailure deletes offloaded pods of failed nodes of this cluster.
//
// When a node fails, Kubernetes marks its pods for deletion, but the pods stay Terminating, because the kubelet does
// not respond. A ReplicaSet replaces an ordinary pod immediately. An offloaded pod, however, has a fixed name, so it
// cannot be replaced until it is gone. Therefore an offloaded pod is force-deleted if it is past its grace period and
// its node has not been ready for a while. The ShadowPod controller then recreates it on another node. This is off by
// default, because the containers of a force-deleted pod may still be running: if the node comes back without a
// restart, they run until the kubelet stops them.
//
// Pods that must not run twice are not deleted: pods of StatefulSets, and pods that write to PersistentVolumeClaims. An
// administrator who knows that their node is off can set the taint node.kubernetes.io/out-of-service. Kubernetes then
// deletes them.
package nodefailure

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// Options are the settings of the controller.
type Options struct {
	// Enabled determines whether the controller is started.
	Enabled bool
	// Workers is how many pods are reconciled at once.
	Workers int
	// Delay is how long a node must have been not ready before its pods are deleted.
	Delay time.Duration
	// Clock returns the time.
	Clock clock.Clock
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller force-deletes pods on failed nodes.
type Controller struct {
	client   client.Client
	live     client.Reader
	recorder events.EventRecorder
	options  Options
}

// NewController returns a controller that uses the client c. The cache of c contains the pods of ShadowPods. live must
// not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	return &Controller{client: c, live: live, recorder: recorder, options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "nodefailure" }

const (
	forceDeletedReason = "ForceDeletedPod"
	forceDeleteAction  = "ForceDelete"
	// kubeletGracePeriod is added to the grace period of a pod. A working kubelet has deleted the pod by then, so
	// that usually no node must be read.
	kubeletGracePeriod = 2 * time.Second
	// recheckInterval is how often a pod is checked while its node may still fail.
	recheckInterval = 10 * time.Second
)

// Reconcile deletes the pod if its node has failed.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cached := &corev1.Pod{}
	if err := c.client.Get(ctx, request.NamespacedName, cached); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if cached.DeletionTimestamp == nil {
		return reconcile.Result{}, nil
	}
	if left := cached.DeletionTimestamp.Add(kubeletGracePeriod).Sub(c.options.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	pod := &corev1.Pod{}
	if err := c.live.Get(ctx, request.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pod.UID != cached.UID || pod.DeletionTimestamp == nil || pod.Spec.NodeName == "" || !mayRunTwice(pod) {
		return reconcile.Result{}, nil
	}
	since, failed, err := c.hasNodeFailed(ctx, pod.Spec.NodeName)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !failed:
		return reconcile.Result{RequeueAfter: recheckInterval}, nil
	}
	if left := since.Add(c.options.Delay).Sub(c.options.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: min(left, recheckInterval)}, nil
	}
	return reconcile.Result{}, c.deletePod(ctx, pod, since)
}

// hasNodeFailed reports whether a node is not ready, and since when. It returns false for a node that does not exist,
// because Kubernetes deletes its pods.
func (c *Controller) hasNodeFailed(ctx context.Context, name string) (since time.Time, failed bool, err error) {
	node := &corev1.Node{}
	if err := c.live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return since, false, nil
		}
		return since, false, fmt.Errorf("getting node %s, %w", name, err)
	}
	if _, condition := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); condition != nil {
		return condition.LastTransitionTime.Time, condition.Status != corev1.ConditionTrue, nil
	}
	return since, false, nil // the node has never reported this condition
}

// mayRunTwice reports whether a second instance of the pod may be started while the first may still be running.
func mayRunTwice(pod *corev1.Pod) bool {
	if _, ordinal := pod.Labels[appsv1.StatefulSetPodNameLabel]; ordinal {
		return false
	}
	return !slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.PersistentVolumeClaim != nil && !volume.PersistentVolumeClaim.ReadOnly || volume.Ephemeral != nil
	})
}

func (c *Controller) deletePod(ctx context.Context, pod *corev1.Pod, since time.Time) error {
	err := c.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("force-deleting pod %s, %w", client.ObjectKeyFromObject(pod), err)
	}
	log.FromContext(ctx).Info("Force-deleted a pod, because its node has failed", "pod", client.ObjectKeyFromObject(pod), "node", pod.Spec.NodeName, "since", since)
	c.recorder.Eventf(pod, nil, corev1.EventTypeWarning, forceDeletedReason, forceDeleteAction,
		"node %s has not been ready since %s: the pod was force-deleted and will be recreated on another node", pod.Spec.NodeName, since.UTC().Format(time.RFC3339))
	return nil
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &corev1.PodList{}, func(pod client.Object) bool { return pod.GetDeletionTimestamp() != nil }
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	terminating := predicate.NewPredicateFuncs(func(pod client.Object) bool {
		return pod.GetDeletionTimestamp() != nil && pod.GetLabels()[wire.ManagedByLabel] == wire.ManagedByShadowPod
	})
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(c.options.Workers)).
		Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(terminating)).
		Complete(report.Failures(c, c.options.Failed))
}
