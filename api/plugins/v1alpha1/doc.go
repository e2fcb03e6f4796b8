// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the types of the group plugins.refract.io: what Refract adds to the compatible groups.
//
// A ReflectedResource makes virtual kubelets reflect one more kind of object, custom resources above all, at run time.
//
// +kubebuilder:object:generate=true
// +groupName=plugins.refract.io
package v1alpha1
