// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package podaddresses requests an address for each offloaded pod, at which the pods of other providers reach it.
//
// A provider has routes to the pods of this cluster and to its external range, but not to the pods of other providers.
// With an address in the external range, packets from one provider pass through the gateways of this cluster to another
// provider. The virtual kubelets put the address into the endpoints that they reflect.
//
// The request is an IP with the name and the namespace of the pod, as in Liqo. Package addresses grants it, and Kubernetes
// deletes it with the pod.
package podaddresses

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	api "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/podend"
)

// Options are the settings of the controller.
type Options struct {
	// Workers is the number of pods that are reconciled concurrently.
	Workers int
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller creates an IP for each offloaded pod, and replaces it when the address of the pod changes.
type Controller struct {
	client  client.Client
	options Options
	// pods reads offloaded pods only. Register sets it.
	pods client.Reader
}

// NewController returns a controller that uses the client c.
func NewController(c client.Client, options Options) *Controller {
	return &Controller{client: c, options: options}
}

// Name returns the name of the controller in logs and metrics.
func (c *Controller) Name() string { return "podaddresses" }

// Reconcile creates, keeps or deletes the IP of one pod.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := c.pods.Get(ctx, request.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // the garbage collector deletes the IP of a deleted pod
	}
	ip := &api.IP{}
	err := c.client.Get(ctx, request.NamespacedName, ip)
	if apierrors.IsNotFound(err) {
		ip, err = nil, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("getting IP %s, %w", request, err)
	}
	address, hasAddress := findAddress(pod)
	switch {
	case ip == nil && hasAddress:
		return reconcile.Result{}, c.createIP(ctx, pod, address)
	case ip == nil, ip.DeletionTimestamp != nil, !belongsToPod(ip), isFor(ip, pod, address, hasAddress):
		return reconcile.Result{}, nil
	}
	// The address of an IP is immutable. The event of the deletion triggers the creation of the new IP.
	if err := c.client.Delete(ctx, ip, client.Preconditions{UID: &ip.UID}); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("deleting the former IP of pod %s, %w", request, err)
	}
	return reconcile.Result{}, nil
}

// findAddress returns the IPv4 address of a pod that has not finished. The address of a finished pod may belong to
// another pod.
func findAddress(pod *corev1.Pod) (address netip.Addr, ok bool) {
	if podend.Finished(pod.Status.Phase) {
		return address, false
	}
	address, err := netip.ParseAddr(pod.Status.PodIP)
	return address, err == nil && address.Is4()
}

// belongsToPod reports whether an IP was created by this controller or by Liqo. Any other IP with the name of a pod was
// created by a user, and is left unchanged.
func belongsToPod(ip *api.IP) bool {
	owner := metav1.GetControllerOf(ip)
	return owner != nil && owner.Kind == "Pod"
}

// isFor reports whether an IP is still correct. While a pod that had an address has none, such as during a restart of
// its node, the IP is kept.
func isFor(ip *api.IP, pod *corev1.Pod, address netip.Addr, hasAddress bool) bool {
	if metav1.GetControllerOf(ip).UID != pod.UID || podend.Finished(pod.Status.Phase) {
		return false
	}
	return !hasAddress || string(ip.Spec.IP) == address.String()
}

func (c *Controller) createIP(ctx context.Context, pod *corev1.Pod, address netip.Addr) error {
	isController := true
	ip := &api.IP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name,
			Labels: map[string]string{wire.PodNameLabel: pod.Name, wire.PodNamespaceLabel: pod.Namespace},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &isController,
			}},
		},
		Spec: api.IPSpec{IP: networking.IP(address.String())},
	}
	err := c.client.Create(ctx, ip)
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating the IP of pod %s/%s, %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &api.IPList{}, func(ip client.Object) bool { return ip.GetLabels()[wire.PodNameLabel] != "" }
}

// Register adds the controller to mgr, with a cache of offloaded pods. The manager's own cache contains only the pods
// of consumers.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	pods, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), ReaderFailOnMissingInformer: true,
		ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {
			Label: labels.SelectorFromSet(labels.Set{wire.OffloadedPodLabel: "true"}), Transform: shrinkPod,
		}},
	})
	if err != nil {
		return fmt.Errorf("preparing the cache of offloaded pods, %w", err)
	}
	if err := mgr.Add(pods); err != nil {
		return fmt.Errorf("adding the cache of offloaded pods, %w", err)
	}
	c.pods = pods
	ofPods := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, ip client.Object) []reconcile.Request {
		if ip.GetLabels()[wire.PodNameLabel] == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(ip)}}
	})
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(c.options.Workers)).
		Watches(&api.IP{}, ofPods).
		WatchesRawSource(source.Kind(pods, client.Object(&corev1.Pod{}), &handler.EnqueueRequestForObject{})).
		Complete(report.Failures(c, c.options.Failed))
}

// shrinkPod keeps only the fields of a pod that this controller reads.
func shrinkPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	small := &corev1.Pod{Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIP: pod.Status.PodIP}}
	small.Namespace, small.Name, small.UID, small.ResourceVersion = pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion
	return small, nil
}
