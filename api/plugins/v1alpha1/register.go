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

// ReflectionPluginKind is the kind of a ReflectionPlugin.
const ReflectionPluginKind = "ReflectionPlugin"

// PluginRevisionKind is the kind of a PluginRevision.
const PluginRevisionKind = "PluginRevision"

// PluginModuleKind is the kind of a PluginModule.
const PluginModuleKind = "PluginModule"

// AddToScheme registers the kinds of this package with s. It never fails; the
// error is for runtime.SchemeBuilder.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ReflectedResource{}, &ReflectedResourceList{}, &PeerNetwork{}, &PeerNetworkList{},
		&ReflectionPlugin{}, &ReflectionPluginList{}, &PluginRevision{}, &PluginRevisionList{}, &PluginModule{}, &PluginModuleList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
