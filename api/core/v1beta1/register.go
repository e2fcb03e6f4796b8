// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "core.liqo.io", Version: "v1beta1"}

// ForeignClusterGVR is the resource of ForeignClusters, for dynamic clients.
var ForeignClusterGVR = GroupVersion.WithResource("foreignclusters")

// AddToScheme registers the kinds of this package with s. It always returns nil. It has a result so that it can be
// passed to runtime.SchemeBuilder.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ForeignCluster{}, &ForeignClusterList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
