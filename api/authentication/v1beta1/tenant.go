// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// Tenant describes a consumer of this cluster. It is in the tenant namespace of the consumer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tn,categories=liqo
// +kubebuilder:printcolumn:name="Condition",type=string,JSONPath=`.spec.tenantCondition`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TenantSpec `json:"spec,omitempty"`
	// +optional
	Status TenantStatus `json:"status,omitempty"`
}

// TenantList is a list of Tenants.
//
// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tenant `json:"items"`
}

// AuthzPolicy is the authentication that is required of a consumer.
//
// +kubebuilder:validation:Enum=KeysExchange;TolerateNoHandshake
type AuthzPolicy string

// Kinds of authentication.
const (
	// KeysExchange means that the consumer must sign the nonce of this cluster with its key.
	KeysExchange AuthzPolicy = "KeysExchange"
	// TolerateNoHandshake means that no signature is required. An administrator grants access to the tenant
	// namespace. With this access, certificates can be requested for any key.
	TolerateNoHandshake AuthzPolicy = "TolerateNoHandshake"
)

// TenantCondition limits what a consumer may do.
//
// +kubebuilder:validation:Enum=Active;Cordoned;Drained
type TenantCondition string

// Limits on the actions of a consumer.
const (
	// TenantActive means that the consumer may use its resources and request more.
	TenantActive TenantCondition = "Active"
	// TenantCordoned means that the consumer keeps its resources, but gets no new pods and no more resources.
	TenantCordoned TenantCondition = "Cordoned"
	// TenantDrained means that the consumer has no access. Its ResourceSlices and NamespaceMaps in this cluster are
	// deleted, and so are its remote namespaces.
	TenantDrained TenantCondition = "Drained"
)

// TenantSpec identifies and authenticates the consumer.
type TenantSpec struct {
	// ClusterID is the ID of the consumer. It is immutable.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterID is immutable"
	// +optional
	ClusterID core.ClusterID `json:"clusterID,omitempty"`

	// AuthzPolicy is the authentication that is required of the consumer.
	//
	// +kubebuilder:default=KeysExchange
	// +optional
	AuthzPolicy *AuthzPolicy `json:"authzPolicy,omitempty"`

	// PublicKey is the public key of the consumer: PKIX in PEM (Ed25519, RSA or ECDSA), or the 32 bytes of an Ed25519
	// key.
	//
	// +optional
	PublicKey []byte `json:"publicKey,omitempty"`

	// CSR is the request, in PEM, for the certificate of the consumer's controllers.
	//
	// +optional
	CSR []byte `json:"csr,omitempty"`

	// Signature is the consumer's signature of the nonce that this cluster has generated for it.
	//
	// +optional
	Signature []byte `json:"signature,omitempty"`

	// ProxyURL is the URL of a proxy through which the consumer reaches this API server.
	//
	// +optional
	ProxyURL *string `json:"proxyURL,omitempty"`

	// TenantCondition limits what the consumer may do.
	//
	// +kubebuilder:default=Active
	// +optional
	TenantCondition TenantCondition `json:"tenantCondition,omitempty"`
}

// TenantStatus is the response to a Tenant.
type TenantStatus struct {
	// TenantNamespace is the namespace of the consumer in this cluster.
	//
	// +optional
	TenantNamespace string `json:"tenantNamespace,omitempty"`

	// AuthParams are the credentials with which the consumer's controllers access this cluster.
	//
	// +optional
	AuthParams *AuthParams `json:"authParams,omitempty"`
}

// IsOfRefractctl reports whether refractctl has admitted the consumer. Such a Tenant only limits the access of the
// consumer. Each consumer has one, with the name of the consumer.
func (t *Tenant) IsOfRefractctl() bool {
	return t.Labels[wire.AdmittedByLabel] == wire.AdmittedByRefractctl && t.Name == string(t.Spec.ClusterID)
}

// Policy returns the required authentication. If none is set, it returns KeysExchange.
func (s *TenantSpec) Policy() AuthzPolicy {
	if s.AuthzPolicy == nil {
		return KeysExchange
	}
	return *s.AuthzPolicy
}
