// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ClusterID identifies a cluster. It is unique among the clusters that peer with
// each other, and short enough to be a label value (63 characters) because it
// becomes one on every reflected object.
//
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type ClusterID string

// MaxClusterIDLength is the length of the longest id: "liqo-tenant-" and the id are the name of a namespace, which has at most 63 characters.
const MaxClusterIDLength = 63 - len("liqo-tenant-")

// Validate returns an error if the id is invalid. It is
// stricter than the CRD, which bounds no length.
func (c ClusterID) Validate() error {
	if problems := validation.IsDNS1123Label(string(c)); len(problems) > 0 {
		return fmt.Errorf("cluster id %q is invalid: %s", c, problems[0])
	}
	if len(c) > MaxClusterIDLength {
		return fmt.Errorf("cluster id %q is invalid: must be no more than %d characters, because its tenant namespace is named liqo-tenant-%s", c, MaxClusterIDLength, c)
	}
	return nil
}

// String returns the id as plain text.
func (c ClusterID) String() string { return string(c) }
