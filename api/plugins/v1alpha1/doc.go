// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the types of the group plugins.refract.io: Refract's additions to Liqo's groups.
//
// A ReflectedResource makes virtual kubelets reflect an additional kind of object at run time, such as a custom
// resource. A PeerNetwork describes the network between this cluster and a peer. A ReflectionPlugin declares a
// plugin. Its PluginRevisions are the modules that were fetched and accepted, with their settings. PluginModules have
// the bytes of these modules.
//
// +kubebuilder:object:generate=true
// +groupName=plugins.refract.io
package v1alpha1
