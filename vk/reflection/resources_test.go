// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

// Key identifies an object by its namespace and name.
type Key = queue.Key

var (
	servicesResource = corev1.SchemeGroupVersion.WithResource("services")
	ipsResource      = schema.GroupVersionResource{Group: "ipam.liqo.io", Version: "v1alpha1", Resource: "ips"}
)
