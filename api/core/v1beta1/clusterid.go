// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ClusterID identifies a cluster. It is unique among clusters that peer with each other. It is also the value of a
// label on every reflected object, which limits it to 63 characters.
//
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type ClusterID string

// MaxClusterIDLength is the maximum length of a cluster ID. A namespace name has at most 63 characters, and the
// tenant namespace is named "liqo-tenant-" followed by the ID.
const MaxClusterIDLength = 63 - len("liqo-tenant-")

// Validate returns an error if the ID is invalid. It is stricter than the CRD, which does not limit the length.
func (c ClusterID) Validate() error {
	if problems := validation.IsDNS1123Label(string(c)); len(problems) > 0 {
		return fmt.Errorf("cluster id %q is invalid: %s", c, problems[0])
	}
	if len(c) > MaxClusterIDLength {
		return fmt.Errorf("cluster id %q is invalid: must be no more than %d characters, because its tenant namespace is named liqo-tenant-%s", c, MaxClusterIDLength, c)
	}
	return nil
}

// String returns the ID as a plain string.
func (c ClusterID) String() string { return string(c) }
