// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantlimits

// Settings for pods.
var (
	SchedulerNames = &Setting{Name: "scheduler-names", Kind: Globs, Default: "default-scheduler",
		Help: "schedulers that the pods of consumers may name"}
	NodeSelectors = &Setting{Name: "node-selectors", Kind: Globs,
		Default: "kubernetes.io/arch,kubernetes.io/os,topology.kubernetes.io/region,topology.kubernetes.io/zone",
		Help:    "labels of nodes that the node selectors and node affinities of the pods of consumers may use; metadata.name selects nodes by their names"}
	Tolerations = &Setting{Name: "tolerations", Kind: Globs,
		Default: "node.kubernetes.io/disk-pressure,node.kubernetes.io/memory-pressure,node.kubernetes.io/not-ready,node.kubernetes.io/pid-pressure,node.kubernetes.io/unreachable",
		Help:    "keys of taints that the pods of consumers may tolerate; only * allows a toleration of all taints"}
	CrossNamespaceAffinity = &Setting{Name: "cross-namespace-affinity", Kind: Switch, Default: "false",
		Help: "allow pod affinities and anti-affinities of the pods of consumers to select pods of other namespaces"}
	PriorityClasses = &Setting{Name: "priority-classes", Kind: Globs,
		Help: "priority classes that the pods of consumers may use; those of the system are never allowed"}
	RuntimeClasses = &Setting{Name: "runtime-classes", Kind: Globs,
		Help: "runtime classes that the pods of consumers may use"}
	MaxTerminationGracePeriod = &Setting{Name: "max-termination-grace-period-seconds", Kind: Number, Default: "3600",
		Help: "maximum grace period of the pods of consumers, and of a deletion by a consumer, in seconds"}
	ServiceAccounts = &Setting{Name: "service-accounts", Kind: Globs, Default: "default",
		Help: "service accounts, in their namespaces, that the pods of consumers may use"}
	ServiceAccountTokens = &Setting{Name: "service-account-tokens", Kind: Switch, Default: "true",
		Help: "allow the pods of consumers to request credentials for the API server of this cluster; without a request they get none"}
	// The Pod Security level determines whether hostPath is allowed. csi is not in the default, because some CSI
	// drivers mount network storage from any address.
	VolumeTypes = &Setting{Name: "volume-types", Kind: Globs,
		Default: "configMap,downwardAPI,emptyDir,ephemeral,hostPath,image,persistentVolumeClaim,projected,secret",
		Help:    "types of volumes that the pods of consumers may use; the Pod Security level decides about hostPath, too"}
	// The host network is never allowed: pods on the host network have no address in the network between the clusters,
	// and NetworkPolicies do not apply to them.
	HostNamespaces = &Setting{Name: "host-namespaces", Kind: Names, Of: []string{"hostPID", "hostIPC"},
		Help: "namespaces of the node, hostPID and hostIPC, that the pods of consumers may use; the Pod Security level must be privileged, too"}
)

var podSettings = []*Setting{
	SchedulerNames, NodeSelectors, Tolerations, CrossNamespaceAffinity, PriorityClasses, RuntimeClasses, MaxTerminationGracePeriod, ServiceAccounts, ServiceAccountTokens, VolumeTypes, HostNamespaces,
}
