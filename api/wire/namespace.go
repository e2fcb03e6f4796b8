// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Labels and annotations of offloaded namespaces and remote namespaces.
const (
	// SchedulingEnabledLabel ("true") lets the pods of a namespace onto virtual nodes.
	SchedulingEnabledLabel = "liqo.io/scheduling-enabled"
	// EgressIsolationPolicy is the NetworkPolicy that isolates the pods in the namespaces of consumers for egress, and EgressNetworkPolicy the one
	// with the egress that the provider allows to those that no other NetworkPolicy isolates. A provider creates both, and the LimitRange
	// TenantLimitRange. Names that begin with EgressNetworkPolicy are reserved: several are needed for some selectors.
	EgressIsolationPolicy = "refract-egress-isolation"
	EgressNetworkPolicy   = "refract-egress"
	TenantLimitRange      = "refract-limits"
	// ManagedByNamespaceMapAnnotation holds namespace/name of the NamespaceMap
	// for which a remote namespace was created; without it the namespace is not ours.
	ManagedByNamespaceMapAnnotation = "liqo.io/managed-by-namespace-map"
	// OriginalNameAnnotation holds the name of the consumer's namespace.
	OriginalNameAnnotation = "liqo.io/original-name"

	// NamespaceMapFinalizer holds the provider's copy of a NamespaceMap until
	// its remote namespaces are gone.
	NamespaceMapFinalizer = "namespacemap-controller.liqo.io/finalizer"
	// NamespaceOffloadingFinalizer holds a NamespaceOffloading until its
	// namespace is mapped nowhere.
	NamespaceOffloadingFinalizer = "namespaceoffloading-controller.liqo.io/finalizer"
)

// MaxEgressPolicies bounds how many NetworkPolicies of that name, with and without a number, are in a namespace.
const MaxEgressPolicies = 8

// EgressPolicyNames returns the names of all NetworkPolicies that a provider creates in the namespaces of its consumers.
func EgressPolicyNames() []string {
	const n = EgressNetworkPolicy
	return []string{EgressIsolationPolicy, n, n + "-2", n + "-3", n + "-4", n + "-5", n + "-6", n + "-7", n + "-8"}
}

// Tenant namespaces, in which a peering keeps its resources.
const (
	// TenantNamespaceLabel ("true") marks one.
	TenantNamespaceLabel = "liqo.io/tenant-namespace"
	// TenantNamespacePrefix before the id of the other cluster is its name.
	TenantNamespacePrefix = "liqo-tenant-"
	// RemoteTenantNamespaceAnnotation names the tenant namespace on the other
	// side, on the Secret with the kubeconfig for that cluster.
	RemoteTenantNamespaceAnnotation = "liqo.io/remote-tenant-namespace"
	// DeleteDataAnnotation ("true") confirms that the data of volumes on a
	// provider, whose reclaim policy is Delete, may be deleted with remote
	// namespaces: on a NamespaceOffloading for its namespace, on a VirtualNode or
	// NamespaceMap for all namespaces of the provider.
	DeleteDataAnnotation = "plugins.refract.io/delete-data"
	// ObjectCountsQuota is the ResourceQuota with the number of objects of
	// each kind that a consumer may have in a remote namespace.
	ObjectCountsQuota = "refract-objects"
	// HeartbeatLease is the Lease that a consumer renews in its tenant
	// namespace on the provider, for as long as its API server answers.
	HeartbeatLease = "refract-heartbeat"
	// ClusterIDAnnotation names, on the HeartbeatLease, the cluster that the
	// Lease is in. The provider writes it, so that a consumer notices that a
	// kubeconfig leads to another cluster.
	ClusterIDAnnotation = "plugins.refract.io/cluster-id"
	// ClusterUIDAnnotation is the UID of the namespace kube-system of the other
	// cluster, on a tenant namespace: two clusters that claim one id are told
	// apart by it.
	ClusterUIDAnnotation = "plugins.refract.io/cluster-uid"
	// ConsumerServiceAccount is, in the tenant namespace of a consumer, the
	// ServiceAccount whose tokens open this provider to it.
	ConsumerServiceAccount = "refract-consumer"
	// ConsumerRenew is, in the tenant namespace of a consumer, the Renew with
	// which it asks this provider for its next client certificate.
	ConsumerRenew = "refract-consumer"
	// ManagedByRefractctl is the label app.kubernetes.io/managed-by of what refractctl has created.
	ManagedByRefractctl = "refractctl"
	// DrainedTenantAnnotation ("true"), on the tenant namespace of a consumer,
	// records that refractctl has revoked its access, and may restore it.
	DrainedTenantAnnotation = "plugins.refract.io/drained"
	// ConsumerKeysAnnotation, on the tenant namespace of a consumer, records the
	// fingerprints of the keys with which it may ask for that, separated by
	// commas. refractctl peer writes it, and the provider's controllers continue it.
	ConsumerKeysAnnotation = "plugins.refract.io/consumer-keys"
	// RenewalProofAnnotation, on a ConsumerRenew, is the signature of the request
	// by one of these keys, in base64.
	RenewalProofAnnotation = "plugins.refract.io/renewal-proof"
	// RenewedAnnotation ("true"), on the Secret with a kubeconfig, says that the
	// provider renews the client certificate in it.
	RenewedAnnotation = "plugins.refract.io/renewed"
	// ProbeSecret holds, in the tenant namespace of a consumer, a kubeconfig
	// with which this provider may ask the consumer's API server whether it lives.
	ProbeSecret = "refract-probe"
)

// How the resources of a peering travel between its two tenant namespaces.
const (
	// ReplicationLabel is "true" on what is to be sent and "false" on the copy.
	ReplicationLabel = "liqo.io/replication"
	// RemoteIDLabel names, on what is sent, the cluster it goes to.
	RemoteIDLabel = "liqo.io/remoteID"
	// OriginIDLabel names, on the copy, the cluster it comes from.
	OriginIDLabel = "liqo.io/originID"
	// ReplicatedLabel is "true" on the copy.
	ReplicatedLabel = "liqo.io/replicated"
	// ReplicatorFinalizer holds what was sent until its copy is gone.
	ReplicatorFinalizer = "crdreplicator.liqo.io/resource"
)

// Reasons of the conditions of a NamespaceOffloading.
const (
	ClusterSelectedReason     = "ClusterSelected"
	ClusterNotSelectedReason  = "ClusterNotSelected"
	NamespaceCreatedReason    = "NamespaceCreated"
	NamespaceCreatingReason   = "Creating"
	CreationLoopBackOffReason = "CreationLoopBackOff"
	TerminatingReason         = "Terminating"
)

// ConsumerUser returns the name under which a user is known in Quotas: a
// consumer that authenticates with a token of its ServiceAccount has the name
// that it has with a certificate, its cluster id. Others have their own.
func ConsumerUser(username string) string {
	const prefix, suffix = "system:serviceaccount:" + TenantNamespacePrefix, ":" + ConsumerServiceAccount
	if len(username) > len(prefix)+len(suffix) && username[:len(prefix)] == prefix && username[len(username)-len(suffix):] == suffix {
		return username[len(prefix) : len(username)-len(suffix)]
	}
	return username
}

// TenantNamespace returns the name of the tenant namespace for the cluster id.
func TenantNamespace(clusterID string) string { return TenantNamespacePrefix + clusterID }
