// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package endpointslice reflects EndpointSlices. The annotations of a Service also decide whether its slices are
// reflected, and plugins can read them. Therefore the slices are reconciled again when the annotations of their Service
// change.
package endpointslice

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/reflectionpolicy"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

const (
	// Name is the name of the kind.
	Name = "EndpointSlice.discovery.k8s.io"
	// ServiceKind is the kind of Services. Services are watched, and their policy also applies to EndpointSlices.
	ServiceKind = "Service"
	// serviceIndex is the index of slices by their Service.
	serviceIndex = "service"
)

var servicesResource = corev1.SchemeGroupVersion.WithResource("services")

// Kind returns the kind of EndpointSlices.
func Kind() engine.Kind {
	return engine.Kind{
		Name: Name, LiqoName: "EndpointSlice", Source: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
		Workers: 10, Policy: engine.DenyList, PolicyOf: ServiceKind,
		Copy: copies.Spec{
			GVR: offloadingv1beta1.ShadowEndpointSliceGVR, GVK: offloadingv1beta1.GroupVersion.WithKind(offloadingv1beta1.ShadowEndpointSliceKind), Mode: copies.Replace,
			Into: []string{"spec", "template"}, Labels: map[string]string{wire.EndpointSliceManagedByLabel: wire.EndpointSliceManager},
		},
		Never: func(o *unstructured.Unstructured) bool {
			return IsAPIServer(o.GetNamespace(), o.GetName()) || IsAPIServer(o.GetNamespace(), serviceOf(o))
		},
		// The default plugin skips all slices if the clusters do not share a network. An Event for each would only repeat
		// this.
		Chain:   engine.Chain{RoutineSkipper: "endpointslice"},
		Follows: engine.Follows{Network: true}, Cache: engine.Cache{Copies: content.KeepNothing, Indexers: cache.Indexers{serviceIndex: indexByService}},
		Handler: func(env *engine.Env) (engine.Handler, error) { return &handler{engine.Base{Env: env}}, nil },
	}
}

// IsAPIServer reports whether a Service is the Service of this cluster's API server. It is not reflected, because the
// provider has a Service with the same name.
func IsAPIServer(namespace, name string) bool { return namespace == "default" && name == "kubernetes" }

// indexByService is an index function for slices. It does not index copies.
func indexByService(object any) ([]string, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok || u.GetKind() == offloadingv1beta1.ShadowEndpointSliceKind {
		return nil, nil
	}
	return []string{u.GetNamespace() + "/" + serviceOf(u)}, nil
}

// serviceOf returns the name of the Service of a slice, or "" if the slice has no Service.
func serviceOf(slice *unstructured.Unstructured) string {
	name, _ := raw.Labels(slice.Object)[discoveryv1.LabelServiceName].(string)
	return name
}

type handler struct{ engine.Base }

// Extend implements engine.Handler. It watches the Services of the namespace.
func (h *handler) Extend(s *engine.Scope) {
	s.State = s.WatchLocal(ServiceKind, servicesResource, func(before, service *unstructured.Unstructured, deleted bool) {
		serviceChanged(s, before, service, deleted)
	})
}

// serviceChanged enqueues the slices of a Service whose annotations have changed. When a Service is deleted, the slices
// that it owns are not enqueued, because they are deleted, too. Without the Service, only the policy would apply to
// them, so they might be reflected just before their deletion.
func serviceChanged(s *engine.Scope, before, service *unstructured.Unstructured, deleted bool) {
	if before != nil && !deleted && raw.Equal(requestedAnnotations(before), requestedAnnotations(service)) {
		return
	}
	for _, slice := range s.ObjectsBy(serviceIndex, service.GetNamespace()+"/"+service.GetName()) {
		if !deleted || !ownedBy(slice, service) {
			s.Enqueue(raw.Key(slice))
		}
	}
}

// ownedBy reports whether the object has an owner reference to owner, so that it is deleted together with owner.
func ownedBy(object, owner *unstructured.Unstructured) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
}

// requestedAnnotations returns the annotations of a Service, except the ones that this virtual kubelet wrote together
// with the status.
func requestedAnnotations(service *unstructured.Unstructured) map[string]any {
	return content.WithoutBookkeeping(raw.Annotations(service.Object))
}

// serviceAnnotations returns the annotations of a slice's Service, and whether the Service exists.
func serviceAnnotations(s *engine.Scope, slice *unstructured.Unstructured) (annotations map[string]any, exists bool) {
	services, _ := s.State.(*informer.Informer)
	service := services.Get(slice.GetNamespace(), serviceOf(slice))
	if service == nil {
		return nil, false
	}
	return requestedAnnotations(service), true
}

// Decide implements engine.Handler. The annotations of the slice and of its Service decide whether the slice is
// reflected.
func (h *handler) Decide(s *engine.Scope, slice *unstructured.Unstructured) (reflectionpolicy.Verdict, error) {
	return h.Kind().Policy.DecideSlice(raw.Annotations(slice.Object), func() (map[string]any, bool) { return serviceAnnotations(s, slice) })
}

// Context implements engine.Handler. It passes the annotations of the Service to plugins.
func (h *handler) Context(s *engine.Scope, slice *unstructured.Unstructured) (field string, value map[string]any) {
	annotations, _ := serviceAnnotations(s, slice)
	return "serviceAnnotations", annotations
}
