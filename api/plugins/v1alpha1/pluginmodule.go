// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PluginModule is a part of a module. The controller manager creates and deletes it. It is never changed. Readers
// verify the SHA-256 of the whole module.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=refract
// +kubebuilder:printcolumn:name="Part",type=integer,JSONPath=`.spec.part`
// +kubebuilder:printcolumn:name="Parts",type=integer,JSONPath=`.spec.parts`
// +kubebuilder:printcolumn:name="SHA256",type=string,priority=10,JSONPath=`.spec.sha256`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PluginModule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the content of the part.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a module is never changed"
	Spec PluginModuleSpec `json:"spec"`
}

// PluginModuleList is a list of PluginModules.
//
// +kubebuilder:object:root=true
type PluginModuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PluginModule `json:"items"`
}

// PluginModuleSpec is a part of a module.
//
// +kubebuilder:validation:XValidation:rule="self.part < self.parts",message="part: the parts are numbered from 0"
type PluginModuleSpec struct {
	// SHA256 is the SHA-256 of the whole uncompressed module.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256"`

	// Parts is the number of parts of the module.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Parts int32 `json:"parts"`

	// Part is the number of this part, starting at 0.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=63
	Part int32 `json:"part"`

	// Data is the content of this part. The module is compressed with gzip before it is divided into parts.
	//
	// +kubebuilder:validation:MaxLength=1200000
	Data []byte `json:"data"`
}

// moduleNameDigits is the number of digits of the SHA-256 in the name of a PluginModule.
const moduleNameDigits = 40

// PluginModuleName returns the name of the PluginModule for a part of a module. sha256 is in hexadecimal digits.
func PluginModuleName(sha256 string, part int) string {
	return fmt.Sprintf("%.*s-%d", moduleNameDigits, sha256, part)
}
