// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ForeignCluster is the state of another cluster, as this cluster sees it. Its name is the ID of the other cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=fc,categories=liqo
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.status.role`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ClusterID",type=string,priority=1,JSONPath=`.spec.clusterID`
type ForeignCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ForeignClusterSpec `json:"spec,omitempty"`
	// +optional
	Status ForeignClusterStatus `json:"status,omitempty"`
}

// ForeignClusterList is a list of ForeignClusters.
//
// +kubebuilder:object:root=true
type ForeignClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ForeignCluster `json:"items"`
}

// ForeignClusterSpec identifies the foreign cluster.
type ForeignClusterSpec struct {
	// ClusterID is the ID of the foreign cluster. It is immutable.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterID is immutable"
	ClusterID ClusterID `json:"clusterID"`
}

// Role is the role of the foreign cluster in relation to this cluster.
//
// +kubebuilder:validation:Enum=Consumer;Provider;ConsumerAndProvider;Unknown
type Role string

// Roles of a foreign cluster.
const (
	ConsumerRole            Role = "Consumer"
	ProviderRole            Role = "Provider"
	ConsumerAndProviderRole Role = "ConsumerAndProvider"
	UnknownRole             Role = "Unknown"
)

// ForeignClusterStatus is the state of the foreign cluster.
type ForeignClusterStatus struct {
	// ObservedGeneration is the generation that this status describes. 0 means that no controller has reconciled the
	// ForeignCluster yet.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Role is the role of the foreign cluster, not of this cluster.
	//
	// +kubebuilder:default=Unknown
	// +optional
	Role Role `json:"role,omitempty"`

	// Modules are the states of the modules of the peering.
	//
	// +optional
	Modules Modules `json:"modules,omitempty"`

	// APIServerURL is the address of the foreign API server.
	//
	// +optional
	APIServerURL string `json:"apiServerUrl,omitempty"`

	// APIServerLatency is the response time of the foreign API server.
	//
	// +optional
	APIServerLatency *Latency `json:"apiServerLatency,omitempty"`

	// ForeignProxyURL is the URL of the proxy through which the foreign API server is reached.
	//
	// +optional
	ForeignProxyURL string `json:"foreignProxyUrl,omitempty"`

	// TenantNamespace names the tenant namespaces of the peering.
	//
	// +optional
	TenantNamespace TenantNamespaces `json:"tenantNamespace,omitempty"`

	// Conditions are those conditions of the cluster that do not belong to a module.
	//
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// Latency is a measured response time.
type Latency struct {
	// Value is a duration such as 12ms.
	Value string `json:"value"`

	// Timestamp is the time of the measurement. It is not updated while the value stays about the same.
	Timestamp metav1.Time `json:"timestamp"`
}

// TenantNamespaces are the names of the two namespaces with the resources of a peering.
type TenantNamespaces struct {
	// Local is the name of the tenant namespace in this cluster.
	//
	// +optional
	Local string `json:"local,omitempty"`

	// Remote is the name of the tenant namespace in the foreign cluster.
	//
	// +optional
	Remote string `json:"remote,omitempty"`
}

// Modules are the independent parts of a peering.
type Modules struct {
	// Networking connects pods of both clusters.
	//
	// +optional
	Networking Module `json:"networking,omitempty"`

	// Authentication issues the identities of the peering.
	//
	// +optional
	Authentication Module `json:"authentication,omitempty"`

	// Offloading runs pods of one cluster on the other.
	//
	// +optional
	Offloading Module `json:"offloading,omitempty"`
}

// Module is the state of one module.
type Module struct {
	// Enabled reports whether the module takes part in the peering.
	Enabled bool `json:"enabled"`

	// Conditions are the conditions of the module.
	//
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}
