// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Labels, annotations, finalizers and policies of offloaded namespaces and remote namespaces.
const (
	// SchedulingEnabledLabel ("true") permits the pods of a namespace to run on virtual nodes.
	SchedulingEnabledLabel = "liqo.io/scheduling-enabled"
	// EgressIsolationPolicy is the NetworkPolicy that isolates the pods in consumers' namespaces for egress.
	// EgressNetworkPolicy is the NetworkPolicy with the egress that the provider allows to pods that no other
	// NetworkPolicy isolates. A provider creates both, and also the LimitRange TenantLimitRange. Names that begin
	// with EgressNetworkPolicy are reserved, because some selectors need several NetworkPolicies.
	EgressIsolationPolicy = "refract-egress-isolation"
	EgressNetworkPolicy   = "refract-egress"
	TenantLimitRange      = "refract-limits"
	// ManagedByNamespaceMapAnnotation contains the namespace and name (namespace/name) of the NamespaceMap for which a
	// remote namespace was created. A namespace without this annotation is not a remote namespace of Refract.
	ManagedByNamespaceMapAnnotation = "liqo.io/managed-by-namespace-map"
	// OriginalNameAnnotation contains the name of the consumer's namespace.
	OriginalNameAnnotation = "liqo.io/original-name"

	// NamespaceMapFinalizer keeps the provider's copy of a NamespaceMap until its remote namespaces are deleted.
	NamespaceMapFinalizer = "namespacemap-controller.liqo.io/finalizer"
	// NamespaceOffloadingFinalizer keeps a NamespaceOffloading until its namespace is not mapped in any NamespaceMap.
	NamespaceOffloadingFinalizer = "namespaceoffloading-controller.liqo.io/finalizer"
)

// MaxEgressPolicies is the maximum number of NetworkPolicies in a namespace whose name is EgressNetworkPolicy, with
// or without a number.
const MaxEgressPolicies = 8

// EgressPolicyNames returns the names of all NetworkPolicies that a provider creates in the namespaces of its consumers.
func EgressPolicyNames() []string {
	const n = EgressNetworkPolicy
	return []string{EgressIsolationPolicy, n, n + "-2", n + "-3", n + "-4", n + "-5", n + "-6", n + "-7", n + "-8"}
}

// Names in tenant namespaces, which contain the resources of a peering.
const (
	// TenantNamespaceLabel ("true") marks a tenant namespace.
	TenantNamespaceLabel = "liqo.io/tenant-namespace"
	// TenantNamespacePrefix is the first part of a tenant namespace's name. The ID of the other cluster follows.
	TenantNamespacePrefix = "liqo-tenant-"
	// RemoteTenantNamespaceAnnotation on the Secret with the kubeconfig for a cluster names the tenant namespace in
	// that cluster.
	RemoteTenantNamespaceAnnotation = "liqo.io/remote-tenant-namespace"
	// DeleteDataAnnotation ("true") confirms that deleting remote namespaces may also delete the data of volumes on
	// the provider whose reclaim policy is Delete. On a NamespaceOffloading it applies to its namespace, and on a
	// VirtualNode or NamespaceMap to all namespaces of the provider.
	DeleteDataAnnotation = "plugins.refract.io/delete-data"
	// ObjectCountsQuota is the ResourceQuota that limits how many objects of each kind a consumer may have in a
	// remote namespace.
	ObjectCountsQuota = "refract-objects"
	// HeartbeatLease is the Lease in the consumer's tenant namespace on the provider that the consumer renews as long
	// as its own API server responds.
	HeartbeatLease = "refract-heartbeat"
	// ClusterIDAnnotation on the HeartbeatLease is the ID of the cluster that contains the Lease. The provider writes
	// it, so that a consumer notices if a kubeconfig leads to another cluster.
	ClusterIDAnnotation = "plugins.refract.io/cluster-id"
	// ClusterUIDAnnotation on a tenant namespace is the UID of the namespace kube-system in the other cluster. It
	// distinguishes two clusters that claim the same cluster ID.
	ClusterUIDAnnotation = "plugins.refract.io/cluster-uid"
	// ConsumerServiceAccount is the ServiceAccount in the tenant namespace of a consumer. The consumer accesses this
	// provider with its tokens.
	ConsumerServiceAccount = "refract-consumer"
	// HomeNamesService is the Service in the tenant namespace of a consumer by which the consumer's pods resolve the DNS
	// names of their own cluster. Its Deployment and ServiceAccount have the same name.
	HomeNamesService = "refract-home-names"
	// ConsumerRenew is the Renew in the tenant namespace of a consumer with which the consumer requests its next
	// client certificate from this provider.
	ConsumerRenew = "refract-consumer"
	// ManagedByRefractctl is the value of the label app.kubernetes.io/managed-by on objects that refractctl has
	// created.
	ManagedByRefractctl = "refractctl"
	// DrainedTenantAnnotation ("true") on the tenant namespace of a consumer records that refractctl has revoked the
	// consumer's access, so that refractctl may restore it.
	DrainedTenantAnnotation = "plugins.refract.io/drained"
	// TenantConditionAnnotation on the tenant namespace of a consumer records the condition of a cordoned or drained
	// Tenant and, after a slash, its UID. It is needed because the user who joins for the consumer may delete the
	// Tenant.
	TenantConditionAnnotation = "plugins.refract.io/tenant-condition"
	// ConsumerKeysAnnotation on the tenant namespace of a consumer records the fingerprints of the keys with which
	// the consumer may request certificates, separated by commas. refractctl peer writes it, and the provider's
	// controllers keep it up to date.
	ConsumerKeysAnnotation = "plugins.refract.io/consumer-keys"
	// RenewalProofAnnotation on a ConsumerRenew is a signature of the request by one of the keys in
	// ConsumerKeysAnnotation, in base64.
	RenewalProofAnnotation = "plugins.refract.io/renewal-proof"
	// RenewedAnnotation ("true") on the Secret with a kubeconfig means that the provider renews the client
	// certificate in it.
	RenewedAnnotation = "plugins.refract.io/renewed"
	// ProbeSecret is the Secret in the tenant namespace of a consumer with a kubeconfig with which this provider may
	// probe the consumer's API server.
	ProbeSecret = "refract-probe"
)

// Labels and finalizers for the replication of a peering's resources between its two tenant namespaces.
const (
	// ReplicationLabel is "true" on an object to replicate, and "false" on its copy.
	ReplicationLabel = "liqo.io/replication"
	// RemoteIDLabel on an object to replicate is the ID of the cluster to which it is copied.
	RemoteIDLabel = "liqo.io/remoteID"
	// OriginIDLabel on a copy is the ID of the cluster from which it was copied.
	OriginIDLabel = "liqo.io/originID"
	// ReplicatedLabel is "true" on a copy.
	ReplicatedLabel = "liqo.io/replicated"
	// ReplicatorFinalizer keeps a replicated object until its copy is deleted.
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

// ConsumerUser returns the name of a user in Quotas. A consumer that authenticates with a token of its ServiceAccount
// has the same name as with a certificate, which is its cluster ID. For any other user, ConsumerUser returns
// username.
func ConsumerUser(username string) string {
	const prefix, suffix = "system:serviceaccount:" + TenantNamespacePrefix, ":" + ConsumerServiceAccount
	if len(username) > len(prefix)+len(suffix) && username[:len(prefix)] == prefix && username[len(username)-len(suffix):] == suffix {
		return username[len(prefix) : len(username)-len(suffix)]
	}
	return username
}

// TenantNamespace returns the name of the tenant namespace for the cluster with the given ID.
func TenantNamespace(clusterID string) string { return TenantNamespacePrefix + clusterID }
