// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/vk/reflection/internal/engine"
)

// Key names an object.
type Key = engine.Key

var (
	podsResource           = corev1.SchemeGroupVersion.WithResource("pods")
	servicesResource       = corev1.SchemeGroupVersion.WithResource("services")
	nodesResource          = corev1.SchemeGroupVersion.WithResource("nodes")
	secretsResource        = corev1.SchemeGroupVersion.WithResource("secrets")
	claimsResource         = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	volumesResource        = corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	storageClassesResource = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
	ingressesResource      = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
	endpointSlicesResource = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	ipsResource            = schema.GroupVersionResource{Group: "ipam.liqo.io", Version: "v1alpha1", Resource: "ips"}
)
