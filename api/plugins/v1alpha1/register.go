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

// ReflectedResourceGVR is the resource of ReflectedResources, for dynamic clients.
var ReflectedResourceGVR = GroupVersion.WithResource("reflectedresources")

// ReflectedResourceKind is the name of the kind ReflectedResource.
const ReflectedResourceKind = "ReflectedResource"

// PeerNetworkKind is the name of the kind PeerNetwork.
const PeerNetworkKind = "PeerNetwork"

// ReflectionPluginKind is the name of the kind ReflectionPlugin.
const ReflectionPluginKind = "ReflectionPlugin"

// PluginRevisionKind is the name of the kind PluginRevision.
const PluginRevisionKind = "PluginRevision"

// PluginModuleKind is the name of the kind PluginModule.
const PluginModuleKind = "PluginModule"

// AddToScheme registers the kinds of this package with s. It always returns nil. It has a result so that it can be
// passed to runtime.SchemeBuilder.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ReflectedResource{}, &ReflectedResourceList{}, &PeerNetwork{}, &PeerNetworkList{},
		&ReflectionPlugin{}, &ReflectionPluginList{}, &PluginRevision{}, &PluginRevisionList{}, &PluginModule{}, &PluginModuleList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
