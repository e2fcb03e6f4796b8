// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "plugins.refract.io", Version: "v1alpha1"}

// ReflectedResourceGVR is how a dynamic client addresses ReflectedResources.
var ReflectedResourceGVR = GroupVersion.WithResource("reflectedresources")

// ReflectedResourceKind is the kind of a ReflectedResource.
const ReflectedResourceKind = "ReflectedResource"

// PeerNetworkKind is the kind of a PeerNetwork.
const PeerNetworkKind = "PeerNetwork"

// AddToScheme registers the kinds of this package with s. It never fails; the
// error is for runtime.SchemeBuilder.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ReflectedResource{}, &ReflectedResourceList{}, &PeerNetwork{}, &PeerNetworkList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
