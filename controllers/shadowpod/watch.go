// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/onepass"
	"github.com/refract-project/refract/controllers/internal/ownedfields"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/shadows"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/internal/podend"
)

// CacheOptions restricts the manager's cache to the pods that this controller manages, and to the fields that it reads.
func CacheOptions() map[client.Object]cache.ByObject {
	return kind.CacheOptions(maxKeptBytes, &corev1.Pod{}, wire.ManagedByShadowPod, trim)
}

// Decoding returns the options for decoding the objects that this controller reads.
func Decoding() onepass.Decoding { return kind.Decoding() }

// maxRefusedBytes limits the cached spec of a refused pod. The spec of an ordinary pod that exceeds its Quota must fit,
// because it is read every few seconds.
const maxRefusedBytes = 4 << 10

// maxKeptBytes returns the maximum size of a ShadowPod's spec in the cache. The spec of a finished pod is no longer
// needed, and the spec of a refused pod is only needed after the ShadowPod or this cluster changes.
func maxKeptBytes(shadow *unstructured.Unstructured) int {
	if podend.Finished(recordedPhase(shadow)) {
		return 0
	}
	if condition := admission(shadow); condition != nil && condition.Status == metav1.ConditionFalse && condition.ObservedGeneration == shadow.GetGeneration() {
		return maxRefusedBytes
	}
	return shadows.MaxKeptBytes
}

// trim keeps only the fields of a pod that this controller reads. Pods are written with patches, so fields that are
// missing in the cache are not lost on the server.
func trim(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	kept := &corev1.Pod{TypeMeta: pod.TypeMeta, ObjectMeta: pod.ObjectMeta}
	kept.ManagedFields = ownedfields.Only(pod.ManagedFields, wire.ShadowPodFieldManager)
	kept.Spec.Containers = trimContainers(pod.Spec.Containers)
	kept.Spec.InitContainers = trimContainers(pod.Spec.InitContainers)
	kept.Spec.RestartPolicy = pod.Spec.RestartPolicy
	kept.Spec.TerminationGracePeriodSeconds = pod.Spec.TerminationGracePeriodSeconds
	// These fields determine how much of a Quota the pod uses.
	kept.Spec.Overhead, kept.Spec.Resources = pod.Spec.Overhead, pod.Spec.Resources
	kept.Spec.ActiveDeadlineSeconds = pod.Spec.ActiveDeadlineSeconds
	kept.Spec.Tolerations = pod.Spec.Tolerations
	kept.Status.Phase, kept.Status.Reason = pod.Status.Phase, pod.Status.Reason
	switch {
	case podend.Finished(pod.Status.Phase):
		kept.Status.InitContainerStatuses = trimStatuses(pod.Status.InitContainerStatuses)
		kept.Status.ContainerStatuses = trimStatuses(pod.Status.ContainerStatuses)
	case isResizing(pod): // during a resize, the larger size is in use
		kept.Status.InitContainerStatuses = trimSizes(pod.Status.InitContainerStatuses)
		kept.Status.ContainerStatuses = trimSizes(pod.Status.ContainerStatuses)
		kept.Status.Resources, kept.Status.AllocatedResources = pod.Status.Resources, pod.Status.AllocatedResources
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget {
			kept.Status.Conditions = append(kept.Status.Conditions, condition)
		}
	}
	return kept, nil
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, 0, len(containers))
	for i := range containers {
		kept = append(kept, corev1.Container{
			Name: containers[i].Name, Image: containers[i].Image, RestartPolicy: containers[i].RestartPolicy,
			Resources: corev1.ResourceRequirements{Requests: containers[i].Resources.Requests, Limits: containers[i].Resources.Limits},
		})
	}
	return kept
}

// isResizing reports whether a container still has more resources than its spec says, because its node has not
// released them yet.
func isResizing(pod *corev1.Pod) bool {
	sizes := map[string]corev1.ResourceRequirements{}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			sizes[containers[i].Name] = containers[i].Resources
		}
	}
	exceeds := func(has, spec corev1.ResourceList) bool {
		for name, amount := range has {
			if amount.Cmp(spec[name]) > 0 {
				return true
			}
		}
		return false
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			status, size := &statuses[i], sizes[statuses[i].Name]
			actual := ptr.Deref(status.Resources, corev1.ResourceRequirements{})
			if exceeds(status.AllocatedResources, size.Requests) || exceeds(actual.Requests, size.Requests) || exceeds(actual.Limits, size.Limits) {
				return true
			}
		}
	}
	level := ptr.Deref(pod.Spec.Resources, corev1.ResourceRequirements{})
	actual := ptr.Deref(pod.Status.Resources, corev1.ResourceRequirements{})
	return pod.Spec.Resources != nil && (exceeds(pod.Status.AllocatedResources, level.Requests) || exceeds(actual.Requests, level.Requests) || exceeds(actual.Limits, level.Limits))
}

// trimSizes keeps only the actual resources of the containers.
func trimSizes(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	kept := make([]corev1.ContainerStatus, 0, len(statuses))
	for i := range statuses {
		kept = append(kept, corev1.ContainerStatus{Name: statuses[i].Name, Resources: statuses[i].Resources, AllocatedResources: statuses[i].AllocatedResources})
	}
	return kept
}

func trimStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	kept := make([]corev1.ContainerStatus, len(statuses))
	for i := range statuses {
		if ended := statuses[i].State.Terminated; ended != nil {
			kept[i].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: ended.ExitCode, FinishedAt: ended.FinishedAt}
		}
	}
	return kept
}

func (c *Controller) watch(mgr manager.Manager) error {
	return kind.Controller(mgr, c.Name(), c.options.Workers, c.gone.Predicate()).
		Watches(&corev1.Pod{}, c.podHandler()).
		Watches(&corev1.LimitRange{}, c.limitsHandler()).
		Watches(&corev1.Namespace{}, c.namespaceHandler(), builder.WithPredicates(predicate.Funcs{UpdateFunc: tenancy.RulesChanged})).
		Complete(report.Failures(c, c.options.Failed))
}

// admissionDelay is how long the API server's admission may still apply a LimitRange, or the limits of a namespace, after
// they were changed or deleted.
// If it is too short, a pod that has become valid may have to wait for its next retry, and these retries are rare.
const admissionDelay = 3 * time.Second

// limitsCacheLifetime is how long the API server's admission may still apply a LimitRange that it has read, instead of
// observed, before it was deleted: Kubernetes keeps the result of such a read for 30 s. If it is too short, a pod that has
// become valid waits for minutes, as with admissionDelay.
const limitsCacheLifetime = 31 * time.Second

// limitsHandler retries the rejected pods of a namespace at once when its LimitRanges change, and, as long as they are
// not created, again after admissionDelay and after limitsCacheLifetime, when admission certainly applies the change.
func (c *Controller) limitsHandler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	retry := func(ctx context.Context, limits client.Object, q queue) {
		at := time.Now().Add(limitsCacheLifetime)
		for _, request := range c.refusedIn(ctx, limits) {
			c.invalid.RetryAt(request.NamespacedName, at)
			q.Add(request)
			q.AddAfter(request, admissionDelay)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { retry(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { retry(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { retry(ctx, e.Object, q) },
	}
}

// refusedIn returns requests for the ShadowPods in the namespace of a LimitRange whose pods the API server has
// rejected as invalid. They are retried at once, because the LimitRange affects the resources of new pods.
func (c *Controller) refusedIn(_ context.Context, limits client.Object) (requests []reconcile.Request) {
	for _, key := range c.invalid.In(limits.GetNamespace()) {
		c.refused.Drop(key)
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}

// namespaceHandler reconciles the ShadowPods of a namespace whose rules have changed, and once more after
// admissionDelay. All of them are reconciled, because the former rules may be about to refuse any of them.
func (c *Controller) namespaceHandler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
		list := kind.NewList()
		if err := c.client.List(ctx, list, client.InNamespace(e.ObjectNew.GetName())); err != nil {
			log.FromContext(ctx).Error(err, "Cannot list the ShadowPods of a namespace")
		}
		for i := range list.Items {
			request := requestFor(&list.Items[i])
			c.refused.Drop(request.NamespacedName)
			q.Add(request)
			q.AddAfter(request, admissionDelay)
		}
	}}
}

// podHandler maps events of a pod to requests for the ShadowPod with its name. At the start every ShadowPod is
// reconciled anyway, but pods without a ShadowPod need their own request. Pods that are created later come from this
// controller, but their first event may include changes by other clients, because an interrupted watch reports only the
// latest state.
func (c *Controller) podHandler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			pod := e.Object.(*corev1.Pod)
			c.notice(pod)
			if !e.IsInInitialList || kind.OwnerOf(pod) != nil {
				q.Add(requestFor(pod))
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, now := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			c.notice(now)
			if before.UID != now.UID || podChanged(before, now) {
				q.Add(requestFor(now))
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			c.notice(e.Object.(*corev1.Pod))
			q.Add(requestFor(e.Object))
		},
	}
}

func requestFor(obj client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}
}

// podChanged compares the fields that trim keeps. resourceVersion and managedFields are ignored, because they differ
// in every event.
func podChanged(before, now *corev1.Pod) bool {
	if before.Status.Phase != now.Status.Phase || (before.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) {
		return true // compared first, because the phase changes most often
	}
	a, b := *before, *now
	for _, pod := range []*corev1.Pod{&a, &b} {
		pod.ResourceVersion, pod.Generation, pod.ManagedFields = "", 0, nil
	}
	return !equality.Semantic.DeepEqual(&a, &b)
}
