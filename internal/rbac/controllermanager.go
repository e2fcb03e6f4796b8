// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/refract-project/refract/api/wire"
)

// ControllerManager is what the controllers need in all namespaces. The same
// binary runs on consumers and on providers, and a cluster may be both.
func ControllerManager() Role {
	return Role{
		Name:    "controller-manager",
		Purpose: "the controller manager: extends namespaces as a consumer, creates namespaces, pods and endpoints as a provider",
		Scope:   ClusterScope,
		Rules:   slices.Concat(providerRules(), consumerRules(), eventRules()),
	}
}

func providerRules() []Rule {
	return []Rule{
		grant("to know what consumers ask for",
			"offloading.liqo.io", on("shadowpods", "shadowendpointslices"), do("get", "list", "watch")),
		grant("to know how much of it they may have",
			"offloading.liqo.io", on("quotas"), do("get", "list", "watch")),
		grant("to report progress",
			"offloading.liqo.io", on("shadowpods/status"), do("patch")),
		grant("to own what it makes, where owner references are checked",
			"offloading.liqo.io", on("shadowpods/finalizers", "shadowendpointslices/finalizers"), do("update")),
		grant("to make the pods, and to keep their labels and annotations as they are asked for",
			"", on("pods"), do("get", "list", "watch", "create", "patch")),
		grant("to resize them in place and to add ephemeral containers, when that is done to the consumer's pods",
			"", on("pods/resize", "pods/ephemeralcontainers"), do("patch")),
		grant("to make the EndpointSlices and keep them as they are asked for",
			"discovery.k8s.io", on("endpointslices"), do("get", "list", "watch", "create", "patch")),
		grant("to keep track of peered clusters, and of whether they can be reached: otherwise their endpoints are not ready",
			"core.liqo.io", on("foreignclusters"), do("get", "list", "watch", "create")),
		grant("to report that",
			"core.liqo.io", on("foreignclusters/status"), do("patch")),
		grant("to watch the heartbeats of consumers, and to annotate them with the id of this cluster; no other Lease can be read",
			"coordination.k8s.io", on("leases"), do("get", "list", "watch", "patch"), wire.HeartbeatLease),
		grant("to know whether the network between the clusters is up, where Liqo's network module connects them",
			"networking.liqo.io", on("connections"), do("list")),
		grant("to know the same of other networks, and whether there is one at all",
			"plugins.refract.io", on("peernetworks"), do("get")),
		grant("to know under which addresses others are reached, where Liqo's network module remaps them",
			"networking.liqo.io", on("configurations"), do("list", "watch")),
		grant("to create namespaces for consumers, to delete them when they are withdrawn, and to open extended ones to the scheduler",
			"", on("namespaces"), do("get", "list", "watch", "create", "patch", "delete")),
		grant("to let a consumer into its namespaces",
			"rbac.authorization.k8s.io", on("rolebindings"), do("get", "list", "watch", "create", "patch")),
		grant("to let it in with this role and no other",
			"rbac.authorization.k8s.io", on("clusterroles"), do("bind"), RemoteRolePlaceholder),
	}
}

func consumerRules() []Rule {
	return []Rule{
		grant("to know which namespaces are to be extended, and to hold those objects until the remote namespaces are gone",
			"offloading.liqo.io", on("namespaceoffloadings"), do("get", "list", "watch", "patch")),
		grant("to report progress",
			"offloading.liqo.io", on("namespaceoffloadings/status", "namespacemaps/status"), do("patch")),
		grant("to request remote namespaces, and to hold the requests until they are gone",
			"offloading.liqo.io", on("namespacemaps"), do("get", "list", "watch", "create", "patch")),
		grant("to let virtual kubelets into extended namespaces with this role and no other",
			"rbac.authorization.k8s.io", on("clusterroles"), do("bind"), ExtendedRolePlaceholder),
		grant("to take that back: the RoleBindings that do so bear the name of the role, and no other can be deleted",
			"rbac.authorization.k8s.io", on("rolebindings"), do("delete"), ExtendedRolePlaceholder),
		grant("to know which nodes a namespace may extend to",
			"offloading.liqo.io", on("virtualnodes"), do("get", "list", "watch")),
		grant("to know their labels, and whether they are ready",
			"", on("nodes"), do("get", "list", "watch")),
		grant("to know which Services of a namespace that is withdrawn show addresses of providers",
			"", on("services"), do("list")),
		grant("to know the same of its Ingresses",
			"networking.k8s.io", on("ingresses"), do("list")),
		grant("to take the addresses back from Services",
			"", on("services/status"), do("patch")),
		grant("to take them back from Ingresses",
			"networking.k8s.io", on("ingresses/status"), do("patch")),
		grant("to mark the pods of those that are not",
			"", on("pods"), do("list", "patch")),
		grant("to set the CA bundle of the admission webhook",
			"admissionregistration.k8s.io", on("mutatingwebhookconfigurations"), do("get", "list", "watch", "patch"), WebhookName),
	}
}

func eventRules() []Rule {
	return []Rule{
		grant("to report what could not be done",
			"events.k8s.io", on("events"), do("create", "patch")),
	}
}

// ControllerManagerTenant is what the controller manager of a consumer needs
// in the tenant namespace of one provider, to carry its NamespaceMap there.
func ControllerManagerTenant() Role {
	return Role{
		Name:    "controller-manager-tenant",
		Purpose: "the controller manager, in the tenant namespace of each provider",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to open the provider's API server, and to store the token that follows the one it has; no other Secret can be read",
				"", on("secrets"), do("get", "update"), KubeconfigSecretPlaceholder),
		},
	}
}

// ControllerManagerProbe is what the controller manager of a provider needs in the tenant namespace of a consumer whose API
// server it asks, besides listening to its heartbeat.
func ControllerManagerProbe() Role {
	return Role{
		Name:    "controller-manager-probe",
		Purpose: "the controller manager, in the tenant namespaces of the consumers whose API servers it asks",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to ask the consumer's API server whether it lives; no other Secret can be read",
				"", on("secrets"), do("get"), wire.ProbeSecret),
		},
	}
}

// ControllerManagerVirtualNodes is what the controller manager of a consumer needs besides to run, drain and remove virtual nodes. (The
// chart's admission policies hold it to nodes that are virtual, to Deployments of virtual kubelets in tenant namespaces, and in what it
// deletes to what bears the label of a virtual node.)
func ControllerManagerVirtualNodes() Role {
	return Role{
		Name:    "controller-manager-virtual-nodes",
		Purpose: "the controller manager, where there may be virtual nodes",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to hold VirtualNodes until they are drained",
				"offloading.liqo.io", on("virtualnodes"), do("patch")),
			grant("to report how that goes",
				"offloading.liqo.io", on("virtualnodes/status"), do("patch")),
			grant("to cordon virtual nodes, and to remove them",
				"", on("nodes"), do("patch", "delete")),
			grant("to drain them, as far as disruption budgets allow it",
				"", on("pods/eviction"), do("create")),
			grant("to know which data lies on a provider",
				"", on("persistentvolumes"), do("list")),
			grant("to take the remote namespaces back with the last virtual node of a provider",
				"offloading.liqo.io", on("namespacemaps"), do("delete")),
			grant("to know how virtual kubelets are run",
				"offloading.liqo.io", on("vkoptionstemplates"), do("get", "list", "watch")),
			grant("to run virtual kubelets, to follow whether they work, and to remove them",
				"apps", on("deployments"), do("get", "list", "watch", "create", "update", "delete")),
			grant("to remove what they ran as",
				"", on("serviceaccounts"), do("list", "delete")),
			grant("to remove what they were allowed",
				"rbac.authorization.k8s.io", on("clusterroles", "clusterrolebindings", "roles", "rolebindings"), do("list", "delete")),
		},
	}
}

// ControllerManagerServingCertificates is what the controller manager needs besides to approve the serving certificates of virtual kubelets.
func ControllerManagerServingCertificates() Role {
	return Role{
		Name:    "controller-manager-serving-certificates",
		Purpose: "the controller manager, where it approves the serving certificates of virtual kubelets",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to know who asks for which certificate",
				"certificates.k8s.io", on("certificatesigningrequests"), do("get", "list", "watch")),
			grant("to say so in the request",
				"certificates.k8s.io", on("certificatesigningrequests/approval"), do("update")),
			grant("to approve requests to this signer and no other",
				"certificates.k8s.io", on("signers"), do("approve"), certificatesv1.KubeletServingSignerName),
		},
	}
}

// ControllerManagerResourceSlices is what the controller manager needs besides to create the Quotas of ResourceSlices.
func ControllerManagerResourceSlices() Role {
	return Role{
		Name:    "controller-manager-resource-slices",
		Purpose: "the controller manager, where it creates the Quotas of ResourceSlices",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to know what was granted to consumers",
				"authentication.liqo.io", on("resourceslices"), do("get", "list", "watch")),
			grant("to own what it makes, where owner references are checked",
				"authentication.liqo.io", on("resourceslices/finalizers"), do("update")),
			grant("to hold them to it",
				"offloading.liqo.io", on("quotas"), do("create", "patch")),
		},
	}
}

// ControllerManagerAuthentication is what the controller manager of a provider needs besides to admit consumers that join as Liqo does. Whoever
// approves client certificates can become any user of the cluster.
func ControllerManagerAuthentication() Role {
	return Role{
		Name:    "controller-manager-authentication",
		Purpose: "the controller manager, where it admits consumers that join as Liqo does",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to know who wants to join, and to take the finalizer of Liqo's controllers off",
				"authentication.liqo.io", on("tenants"), do("get", "list", "watch", "patch")),
			grant("to know what consumers ask for, to cordon that, and to delete it where a consumer is drained",
				"authentication.liqo.io", on("resourceslices"), do("get", "list", "watch", "patch", "delete")),
			grant("to know which certificates expire",
				"authentication.liqo.io", on("renews"), do("get", "list", "watch")),
			grant("to answer",
				"authentication.liqo.io", on("tenants/status", "resourceslices/status", "renews/status"), do("patch")),
			grant("to own what it makes, where owner references are checked",
				"authentication.liqo.io", on("tenants/finalizers"), do("update")),
			grant("to generate nonces, and to verify their signatures; no other Secret can be read",
				"", on("secrets"), do("get", "list", "watch", "patch"), wire.NonceSecret),
			grant("to request certificates for consumers",
				"certificates.k8s.io", on("certificatesigningrequests"), do("create", "get", "delete")),
			grant("to say in the request that it is approved",
				"certificates.k8s.io", on("certificatesigningrequests/approval"), do("update")),
			grant("to approve requests to this signer",
				"certificates.k8s.io", on("signers"), do("approve"), certificatesv1.KubeAPIServerClientSignerName),
			grant("to let a consumer into its tenant namespace with this role and no other",
				"rbac.authorization.k8s.io", on("clusterroles"), do("bind"), TenantRolePlaceholder),
			grant("to take that back: the RoleBinding bears the name of the role",
				"rbac.authorization.k8s.io", on("rolebindings"), do("delete"), TenantRolePlaceholder),
			grant("to take remote namespaces back where a consumer is drained",
				"offloading.liqo.io", on("namespacemaps"), do("delete")),
			grant("to offer classes of storage",
				"storage.k8s.io", on("storageclasses"), do("get", "list", "watch")),
		},
	}
}

// ControllerManagerResourceOffers is what the controller manager of a provider needs besides to tell consumers what it offers.
func ControllerManagerResourceOffers() Role {
	return Role{
		Name:    "controller-manager-resource-offers",
		Purpose: "the controller manager, where it tells consumers what this cluster offers",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to know what virtual nodes of consumers are to offer",
				"authentication.liqo.io", on("resourceslices"), do("get", "list", "watch")),
			grant("to answer",
				"authentication.liqo.io", on("resourceslices/status"), do("patch")),
			grant("to offer classes of storage",
				"storage.k8s.io", on("storageclasses"), do("get", "list", "watch")),
		},
	}
}

// ControllerManagerNodeFailure is what the controller manager needs besides to let the pods of failed nodes go. (The chart's
// admission policies hold it to pods of ShadowPods that are being deleted already.)
func ControllerManagerNodeFailure() Role {
	return Role{
		Name:    "controller-manager-node-failure",
		Purpose: "the controller manager, where the node failure controller is enabled",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to delete by force the pods that a failed node keeps",
				"", on("pods"), do("delete")),
		},
	}
}

// ControllerManagerLeaderElection is what replicas of the controller manager
// need in their own namespace to agree which one works.
func ControllerManagerLeaderElection() Role {
	return Role{
		Name:    "controller-manager-leader-election",
		Purpose: "the controller manager, in its own namespace",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to take part in the election (creation cannot be bound to a name)",
				"coordination.k8s.io", on("leases"), do("create")),
			grant("to hold, renew and release the lease",
				"coordination.k8s.io", on("leases"), do("get", "update"), LeaderElectionID, BesideLiqoElectionID),
			grant("to elect a leader",
				"", on("events"), do("create", "patch")),
		},
	}
}

// ControllerManagerWebhook is what every replica of the controller manager needs
// in its own namespace to serve the admission webhook.
func ControllerManagerWebhook() Role {
	return Role{
		Name:    "controller-manager-webhook",
		Purpose: "the controller manager, in its own namespace, when it serves the admission webhook",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to share the authority of the webhook's certificates, and to renew it (the Secret is installed, empty, because creation cannot be bound to a name)",
				"", on("secrets"), do("get", "list", "watch", "update"), WebhookName),
		},
	}
}

// WebhookName names all that belongs to the admission webhook: its
// configuration, the Service that leads to it, and the Secret with the
// authority of its certificates.
const WebhookName = "refract-webhook"

// LeaderElectionID names the lease for which replicas of the controller
// manager compete. It is Liqo's, so that a Liqo controller manager which is
// still running keeps ours waiting rather than working beside it.
const LeaderElectionID = "66cf253f.ctrlmgr.liqo.io"

// BesideLiqoElectionID names the lease of a controller manager that works
// beside Liqo's on purpose, which does no offloading then.
const BesideLiqoElectionID = "refract.ctrlmgr.liqo.io"
