// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "ipam.liqo.io", Version: "v1alpha1"}

// The kinds of this package.
const (
	NetworkKind = "Network"
	IPKind      = "IP"
)

// AddToScheme registers the kinds of this package with s. It never fails; the error is for runtime.SchemeBuilder.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Network{}, &NetworkList{}, &IP{}, &IPList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
