// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resources that the engine watches itself.
var (
	nodesResource = corev1.SchemeGroupVersion.WithResource("nodes")
	ipsResource   = schema.GroupVersionResource{Group: "ipam.liqo.io", Version: "v1alpha1", Resource: "ips"}
)
