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

// Validate returns an error if the id is invalid. It is
// stricter than the CRD, which bounds no length: an id of more than 63
// characters could not become a label value.
func (c ClusterID) Validate() error {
	if problems := validation.IsDNS1123Label(string(c)); len(problems) > 0 {
		return fmt.Errorf("cluster id %q is invalid: %s", c, problems[0])
	}
	return nil
}

// String returns the id as plain text.
func (c ClusterID) String() string { return string(c) }
