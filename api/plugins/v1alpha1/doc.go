// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the types of the group plugins.refract.io: Refract's additions to Liqo's groups.
//
// A ReflectedResource makes virtual kubelets reflect an additional kind of object at run time, such as a custom
// resource. A PeerNetwork describes the network to a peer. A ReflectionPlugin declares a plugin; its PluginRevisions are what was fetched
// and accepted, and PluginModules have the bytes.
//
// +kubebuilder:object:generate=true
// +groupName=plugins.refract.io
package v1alpha1
