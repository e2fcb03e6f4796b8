// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "offloading.liqo.io", Version: "v1beta1"}

// The resources of this package, for dynamic clients. Quota and VkOptionsTemplate are missing, because Refract uses
// only their typed objects.
var (
	VirtualNodeGVR         = GroupVersion.WithResource("virtualnodes")
	NamespaceOffloadingGVR = GroupVersion.WithResource("namespaceoffloadings")
	NamespaceMapGVR        = GroupVersion.WithResource("namespacemaps")
	ShadowPodGVR           = GroupVersion.WithResource("shadowpods")
	ShadowEndpointSliceGVR = GroupVersion.WithResource("shadowendpointslices")
)

// Names of the kinds in this package.
const (
	VirtualNodeKind         = "VirtualNode"
	NamespaceOffloadingKind = "NamespaceOffloading"
	NamespaceMapKind        = "NamespaceMap"
	ShadowPodKind           = "ShadowPod"
	ShadowEndpointSliceKind = "ShadowEndpointSlice"
)

// AddToScheme registers the kinds of this package with s. It always returns nil. It has a result so that it can be
// passed to runtime.SchemeBuilder.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&VirtualNode{}, &VirtualNodeList{},
		&NamespaceOffloading{}, &NamespaceOffloadingList{},
		&NamespaceMap{}, &NamespaceMapList{},
		&ShadowPod{}, &ShadowPodList{},
		&ShadowEndpointSlice{}, &ShadowEndpointSliceList{},
		&Quota{}, &QuotaList{},
		&VkOptionsTemplate{}, &VkOptionsTemplateList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
