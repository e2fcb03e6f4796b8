// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// serviceIndex finds the EndpointSlices of a Service.
const serviceIndex = "service"

func indexByService(object any) ([]string, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	return []string{u.GetNamespace() + "/" + serviceOf(u)}, nil
}

// serviceOf names the Service of an EndpointSlice, "" when it has none.
func serviceOf(slice *unstructured.Unstructured) string {
	name, _ := raw.Labels(slice.Object)[discoveryv1.LabelServiceName].(string)
	return name
}

// service returns the annotations of the Service of an EndpointSlice, and whether there is one.
func (s *Scope) service(slice *unstructured.Unstructured) (annotations map[string]any, exists bool) {
	service := s.services.Get(slice.GetNamespace(), serviceOf(slice))
	if service == nil {
		return nil, false
	}
	return raw.Annotations(service.Object), true
}

// serviceAnnotations are none for kinds that do not follow Services.
func (s *Scope) serviceAnnotations(local *unstructured.Unstructured) map[string]any {
	if !s.r.kind.FollowsService {
		return nil
	}
	annotations, _ := s.service(local)
	return annotations
}

// serviceChanged enqueues the slices of a Service, whose annotations decide about them. Those that are its own go
// with it: without it they would be judged by the policy alone, and may cross just before they are gone.
func (s *Scope) serviceChanged(before, service *unstructured.Unstructured, deleted bool) {
	if before != nil && !deleted && raw.Equal(raw.Annotations(before.Object), raw.Annotations(service.Object)) {
		return
	}
	for _, slice := range s.objects.By(serviceIndex, service.GetNamespace()+"/"+service.GetName()) {
		if !deleted || !ownedBy(slice, service) {
			s.Enqueue(raw.Key(slice))
		}
	}
}

func ownedBy(object, owner *unstructured.Unstructured) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
}
