// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/refract-project/refract/api/wire"
)

// ControllerManager returns the permissions that the controllers need in all namespaces. The same binary runs on
// consumers and on providers, and a cluster may be both.
func ControllerManager() Role {
	return Role{
		Name:    "controller-manager",
		Purpose: "the controller manager: offloads namespaces as a consumer, creates namespaces, pods and endpoints as a provider",
		Scope:   ClusterScope,
		Rules:   slices.Concat(providerRules(), consumerRules(), eventRules()),
	}
}

func providerRules() []Rule {
	return []Rule{
		grant("to read the requests of consumers",
			"offloading.liqo.io", on("shadowpods", "shadowendpointslices"), do("get", "list", "watch")),
		grant("to enforce their quotas",
			"offloading.liqo.io", on("quotas"), do("get", "list", "watch")),
		grant("to have the API server enforce what quotas say about storage and numbers of objects (create cannot be restricted by name)",
			"", on("resourcequotas"), do("create")),
		grant("to keep that up to date; no other ResourceQuota can be read",
			"", on("resourcequotas"), do("get", "list", "watch", "patch", "delete"), wire.ConsumerQuota),
		grant("to report progress",
			"offloading.liqo.io", on("shadowpods/status"), do("patch")),
		grant("to set owner references, where OwnerReferencesPermissionEnforcement is enabled",
			"offloading.liqo.io", on("shadowpods/finalizers", "shadowendpointslices/finalizers"), do("update")),
		grant("to create the pods, to keep their labels and annotations up to date, and to delete them with their ShadowPods",
			"", on("pods"), do("get", "list", "watch", "create", "patch", "delete")),
		grant("to resize them in place and to add ephemeral containers, as in the consumer's pods",
			"", on("pods/resize", "pods/ephemeralcontainers"), do("patch")),
		grant("to create the EndpointSlices, to keep them up to date, and to delete them with their ShadowEndpointSlices",
			"discovery.k8s.io", on("endpointslices"), do("get", "list", "watch", "create", "patch", "delete")),
		grant("to keep endpoints of consumers out of the ranges of this cluster: those of Services, and of the API server",
			"networking.k8s.io", on("servicecidrs"), do("list")),
		grant("to know them before Kubernetes 1.33",
			"", on("services"), do("get"), "kubernetes"),
		grant("to track whether peered clusters are reachable: the endpoints of an unreachable cluster are not ready",
			"core.liqo.io", on("foreignclusters"), do("get", "list", "watch", "create")),
		grant("to report that",
			"core.liqo.io", on("foreignclusters/status"), do("patch")),
		grant("to watch the heartbeats of consumers, and to annotate them with the id of this cluster; no other Lease can be read",
			"coordination.k8s.io", on("leases"), do("get", "list", "watch", "patch"), wire.HeartbeatLease),
		grant("to watch the state of the network between the clusters, where gateways connect them",
			"networking.liqo.io", on("connections"), do("list", "watch")),
		grant("to watch the state of other networks",
			"plugins.refract.io", on("peernetworks"), do("get", "list", "watch")),
		grant("to show in them whether the gateways of the peer are connected",
			"plugins.refract.io", on("peernetworks/status"), do("patch")),
		grant("to translate the addresses of other clusters, where the network remaps them, and to keep pods of consumers from them",
			"networking.liqo.io", on("configurations"), do("list", "watch")),
		grant("to create namespaces for consumers, to delete them when they are unoffloaded, to label offloaded ones for the scheduling webhook, and to record the conditions of Tenants",
			"", on("namespaces"), do("get", "list", "watch", "create", "patch", "delete")),
		grant("to find the claims whose data would be deleted with a namespace",
			"", on("persistentvolumeclaims"), do("list")),
		grant("to limit the pods and objects of a consumer in its namespaces (creation cannot be restricted by name)",
			"", on("resourcequotas", "limitranges"), do("create")),
		grant("to keep these limits as they are set; no others can be read",
			"", on("resourcequotas"), do("get", "list", "watch", "patch"), wire.ObjectCountsQuota),
		grant("to change them, and to remove them",
			"", on("limitranges"), do("patch", "delete"), wire.TenantLimitRange),
		grant("to try again to create pods that were invalid, when a LimitRange of their namespace changes",
			"", on("limitranges"), do("get", "list", "watch")),
		grant("to keep the pods of consumers from the pods, nodes and metadata services of this cluster (creation cannot be restricted by name)",
			"networking.k8s.io", on("networkpolicies"), do("create")),
		grant("to change that, and to remove it",
			"networking.k8s.io", on("networkpolicies"), do("patch", "delete"), wire.EgressPolicyNames()...),
		grant("to add nothing to what other NetworkPolicies allow to the pods that they select",
			"networking.k8s.io", on("networkpolicies"), do("get", "list", "watch")),
		grant("to grant a consumer access to its namespaces",
			"rbac.authorization.k8s.io", on("rolebindings"), do("get", "list", "watch", "create", "patch")),
		grant("to grant this role and no other",
			"rbac.authorization.k8s.io", on("clusterroles"), do("bind"), RemoteRolePlaceholder),
	}
}

func consumerRules() []Rule {
	return []Rule{
		grant("to watch which namespaces are offloaded, and to hold the NamespaceOffloadings until the remote namespaces are deleted",
			"offloading.liqo.io", on("namespaceoffloadings"), do("get", "list", "watch", "patch")),
		grant("to report progress",
			"offloading.liqo.io", on("namespaceoffloadings/status", "namespacemaps/status"), do("patch")),
		grant("to request remote namespaces, and to hold the NamespaceMaps until they are deleted",
			"offloading.liqo.io", on("namespacemaps"), do("get", "list", "watch", "create", "patch")),
		grant("to grant virtual kubelets access to offloaded namespaces with this role and no other",
			"rbac.authorization.k8s.io", on("clusterroles"), do("bind"), ExtendedRolePlaceholder),
		grant("to revoke that access: these RoleBindings have the name of the role, and no other can be deleted",
			"rbac.authorization.k8s.io", on("rolebindings"), do("delete"), ExtendedRolePlaceholder),
		grant("to find the volumes whose data would be deleted with a remote namespace",
			"", on("persistentvolumes"), do("list")),
		grant("to select the virtual nodes of a namespace",
			"offloading.liqo.io", on("virtualnodes"), do("get", "list", "watch")),
		grant("to read their labels and readiness",
			"", on("nodes"), do("get", "list", "watch")),
		grant("to find the Services with addresses of providers in a namespace that is unoffloaded",
			"", on("services"), do("list")),
		grant("to find its Ingresses with addresses of providers",
			"networking.k8s.io", on("ingresses"), do("list")),
		grant("to clear the addresses of those Services",
			"", on("services/status"), do("patch")),
		grant("to clear the addresses of those Ingresses",
			"networking.k8s.io", on("ingresses/status"), do("patch")),
		grant("to label the pods on nodes that are not ready",
			"", on("pods"), do("list", "patch")),
		grant("to set the CA bundle of the admission webhook",
			"admissionregistration.k8s.io", on("mutatingwebhookconfigurations"), do("get", "list", "watch", "patch"), WebhookName),
	}
}

func eventRules() []Rule {
	return []Rule{
		grant("to report errors as Events",
			"events.k8s.io", on("events"), do("create", "patch")),
	}
}

// ControllerManagerTenant returns the permissions that the controller manager of a consumer needs in its tenant
// namespace on a provider, to copy a NamespaceMap to it.
func ControllerManagerTenant() Role {
	return Role{
		Name:    "controller-manager-tenant",
		Purpose: "the controller manager, in the tenant namespace of each provider",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to authenticate at the provider's API server, and to store the renewed token; no other Secret can be read",
				"", on("secrets"), do("get", "update"), KubeconfigSecretPlaceholder),
			grant("to let virtual kubelets read it, where the controller manager creates their ServiceAccounts: it can grant only what it may do itself",
				"", on("secrets"), do("list", "watch"), KubeconfigSecretPlaceholder),
			grant("to remove it with the virtual node that owns it",
				"", on("secrets"), do("delete"), KubeconfigSecretPlaceholder),
			grant("to remove the disruption budgets of virtual kubelets with their virtual nodes",
				"policy", on("poddisruptionbudgets"), do("get", "delete")),
			grant("to remove their NetworkPolicies",
				"networking.k8s.io", on("networkpolicies"), do("get", "delete")),
		},
	}
}

// ControllerManagerProbe returns the permissions that the controller manager of a provider needs in the tenant
// namespace of a consumer to probe the consumer's API server.
func ControllerManagerProbe() Role {
	return Role{
		Name:    "controller-manager-probe",
		Purpose: "the controller manager, in the tenant namespaces of the consumers whose API servers it probes",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to probe the consumer's API server; no other Secret can be read",
				"", on("secrets"), do("get"), wire.ProbeSecret),
		},
	}
}

// ControllerManagerVirtualNodes returns the additional permissions of the controller manager of a consumer to run,
// drain and remove virtual nodes. The chart's admission policies restrict these permissions to virtual nodes, and to
// Deployments of virtual kubelets in tenant namespaces. Only objects with the label of a virtual node can be deleted.
func ControllerManagerVirtualNodes() Role {
	return Role{
		Name:    "controller-manager-virtual-nodes",
		Purpose: "the controller manager, where virtual nodes are enabled",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to hold VirtualNodes until they are drained",
				"offloading.liqo.io", on("virtualnodes"), do("patch")),
			grant("to report the progress",
				"offloading.liqo.io", on("virtualnodes/status"), do("patch")),
			grant("to cordon virtual nodes, and to remove them",
				"", on("nodes"), do("patch", "delete")),
			grant("to drain them, respecting disruption budgets",
				"", on("pods/eviction"), do("create")),
			grant("to delete the remote namespaces with the last virtual node of a provider",
				"offloading.liqo.io", on("namespacemaps"), do("delete")),
			grant("to read the templates of virtual kubelets",
				"offloading.liqo.io", on("vkoptionstemplates"), do("get", "list", "watch")),
			grant("to create virtual kubelets, to watch their status, and to remove them",
				"apps", on("deployments"), do("get", "list", "watch", "create", "update", "delete")),
			grant("to remove their ServiceAccounts",
				"", on("serviceaccounts"), do("list", "delete")),
			grant("to remove their RoleBindings",
				"rbac.authorization.k8s.io", on("clusterroles", "clusterrolebindings", "roles", "rolebindings"), do("list", "delete")),
		},
	}
}

// ControllerManagerKubeletAccounts returns the additional permissions of the controller manager of a consumer to create
// the ServiceAccounts of virtual kubelets, with their roles and bindings. The API server lets a client grant only
// permissions that it has itself, and "bind" only the shared role. So the controller manager has the permissions that
// differ between virtual kubelets, although it does not use them. The chart's admission policies deny their use, and
// restrict the roles, bindings and ServiceAccounts to those of one virtual kubelet in its tenant namespace.
func ControllerManagerKubeletAccounts() Role {
	return Role{
		Name:    "controller-manager-kubelet-accounts",
		Purpose: "the controller manager, where it creates the ServiceAccounts of virtual kubelets",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to create the ServiceAccounts",
				"", on("serviceaccounts"), do("create")),
			grant("to create their roles and bindings",
				"rbac.authorization.k8s.io", on("clusterroles", "clusterrolebindings", "roles"), do("create")),
			grant("to bind this role, which all virtual kubelets have, and no other",
				"rbac.authorization.k8s.io", on("clusterroles"), do("bind"), LocalRolePlaceholder),
			grant("to grant it to a virtual kubelet, and for nothing else: for the node of its name",
				"", on("nodes/status"), do("patch")),
			grant("to grant it to a virtual kubelet, and for nothing else: for the Leases of its name and of its provider",
				"coordination.k8s.io", on("leases"), do("create", "get", "update")),
			grant("to grant it to a virtual kubelet, and for nothing else",
				"", on("configmaps"), do("get", "list", "watch"), AuthenticationConfigMap),
		},
	}
}

// ControllerManagerServingCertificates returns the additional permissions of the controller manager to approve the
// serving certificates of virtual kubelets.
func ControllerManagerServingCertificates() Role {
	return Role{
		Name:    "controller-manager-serving-certificates",
		Purpose: "the controller manager, where it approves the serving certificates of virtual kubelets",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to check the requested certificates",
				"certificates.k8s.io", on("certificatesigningrequests"), do("get", "list", "watch")),
			grant("to record the approval",
				"certificates.k8s.io", on("certificatesigningrequests/approval"), do("update")),
			grant("to approve requests to this signer and no other",
				"certificates.k8s.io", on("signers"), do("approve"), certificatesv1.KubeletServingSignerName),
		},
	}
}

// ControllerManagerResourceSlices returns the additional permissions of the controller manager to create the Quotas
// of ResourceSlices.
func ControllerManagerResourceSlices() Role {
	return Role{
		Name:    "controller-manager-resource-slices",
		Purpose: "the controller manager, where it creates the Quotas of ResourceSlices",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to read the resources granted to consumers",
				"authentication.liqo.io", on("resourceslices"), do("get", "list", "watch")),
			grant("to set owner references, where OwnerReferencesPermissionEnforcement is enabled",
				"authentication.liqo.io", on("resourceslices/finalizers"), do("update")),
			grant("to create their Quotas, and to delete them with the ResourceSlices",
				"offloading.liqo.io", on("quotas"), do("create", "patch", "delete")),
			grant("to cordon a ResourceSlice that a consumer has created again",
				"authentication.liqo.io", on("resourceslices"), do("patch")),
		},
	}
}

// ControllerManagerAuthentication returns the additional permissions of the controller manager of a provider to admit
// consumers that peer with Liqo's protocol. A client that may approve client certificates can become any user of the
// cluster.
func ControllerManagerAuthentication() Role {
	return Role{
		Name:    "controller-manager-authentication",
		Purpose: "the controller manager, where it admits consumers that peer with Liqo's protocol",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to read the Tenants of consumers, to remove the finalizer of Liqo's controllers, and to restore the condition of a former Tenant",
				"authentication.liqo.io", on("tenants"), do("get", "list", "watch", "patch")),
			grant("to read the ResourceSlices of consumers, to cordon them, and to delete them when a consumer is drained",
				"authentication.liqo.io", on("resourceslices"), do("get", "list", "watch", "patch", "delete")),
			grant("to read the requests to renew certificates",
				"authentication.liqo.io", on("renews"), do("get", "list", "watch")),
			grant("to write their status",
				"authentication.liqo.io", on("tenants/status", "resourceslices/status", "renews/status"), do("patch")),
			grant("to set owner references, where OwnerReferencesPermissionEnforcement is enabled",
				"authentication.liqo.io", on("tenants/finalizers"), do("update")),
			grant("to generate nonces, and to verify their signatures; no other Secret can be read",
				"", on("secrets"), do("get", "list", "watch", "patch"), wire.NonceSecret),
			grant("to request certificates for consumers",
				"certificates.k8s.io", on("certificatesigningrequests"), do("create", "get", "delete")),
			grant("to record the approval",
				"certificates.k8s.io", on("certificatesigningrequests/approval"), do("update")),
			grant("to approve requests to this signer",
				"certificates.k8s.io", on("signers"), do("approve"), certificatesv1.KubeAPIServerClientSignerName),
			grant("to grant a consumer access to its tenant namespace with this role and no other",
				"rbac.authorization.k8s.io", on("clusterroles"), do("bind"), TenantRolePlaceholder),
			grant("to revoke that access: the RoleBinding has the name of the role",
				"rbac.authorization.k8s.io", on("rolebindings"), do("delete"), TenantRolePlaceholder),
			grant("to delete remote namespaces when a consumer is drained",
				"offloading.liqo.io", on("namespacemaps"), do("delete")),
			grant("to offer storage classes",
				"storage.k8s.io", on("storageclasses"), do("get", "list", "watch")),
		},
	}
}

// ControllerManagerResourceOffers returns the additional permissions of the controller manager of a provider to
// publish offers to consumers.
func ControllerManagerResourceOffers() Role {
	return Role{
		Name:    "controller-manager-resource-offers",
		Purpose: "the controller manager, where it publishes offers to consumers",
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

// ControllerManagerTenantAccess returns the additional permissions of the controller manager of a provider to create
// and enforce the Tenants of consumers that refractctl has admitted. The chart's admission policies restrict these
// permissions to restoring the subjects of existing RoleBindings, and to spec.cordoned of the consumers' Quotas.
func ControllerManagerTenantAccess() Role {
	return Role{
		Name:    "controller-manager-tenant-access",
		Purpose: "the controller manager, where consumers joined with refractctl have Tenants",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to create a Tenant for each consumer that refractctl has admitted, and to read its spec.tenantCondition",
				"authentication.liqo.io", on("tenants"), do("get", "list", "watch", "create")),
			grant("to report its tenant namespace",
				"authentication.liqo.io", on("tenants/status"), do("patch")),
			grant("to cordon the Quota of a consumer",
				"offloading.liqo.io", on("quotas"), do("patch")),
			grant("to delete remote namespaces when a consumer is drained",
				"offloading.liqo.io", on("namespacemaps"), do("delete")),
			grant("to restore the access to its tenant namespace of a consumer that was drained, with these roles and no others",
				"rbac.authorization.k8s.io", on("clusterroles"), do("bind"), ControlPlaneRolePlaceholder, RenewalRolePlaceholder),
		},
	}
}

// ControllerManagerGrantedKinds returns the additional permissions of the controller manager of a provider to limit
// the objects of kinds that consumers may create beyond their role in the chart.
func ControllerManagerGrantedKinds() Role {
	return Role{
		Name:    "controller-manager-granted-kinds",
		Purpose: "the controller manager, where objects of kinds that are granted to consumers in addition are limited",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to find the permissions that a consumer has in all namespaces",
				"rbac.authorization.k8s.io", on("clusterrolebindings"), do("list")),
			grant("to know which kinds these, and those in its namespaces, let it create",
				"rbac.authorization.k8s.io", on("roles", "clusterroles"), do("get")),
		},
	}
}

// ControllerManagerResourceRequests returns the additional permissions of the controller manager of a consumer to
// deny ResourceSlices that no controller sends to their provider.
func ControllerManagerResourceRequests() Role {
	return Role{
		Name:    "controller-manager-resource-requests",
		Purpose: "the controller manager, where virtual nodes are enabled: denies ResourceSlices of this cluster that nobody sends",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to find ResourceSlices that nobody sends to their provider",
				"authentication.liqo.io", on("resourceslices"), do("get", "list", "watch")),
			grant("to deny them",
				"authentication.liqo.io", on("resourceslices/status"), do("patch")),
		},
	}
}

// ControllerManagerIdentities returns the additional permissions of the controller manager of a consumer to join
// providers by Liqo's protocol.
func ControllerManagerIdentities() Role {
	return Role{
		Name:    "controller-manager-identities",
		Purpose: "the controller manager, where it joins providers by Liqo's protocol",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to sign the nonces of providers; no other Secret can be read in all namespaces",
				"", on("secrets"), do("get", "list", "watch", "patch"), wire.SignedNonceSecret),
			grant("to read Identities, to create those of ResourceSlices, and to replace their certificates",
				"authentication.liqo.io", on("identities"), do("get", "list", "watch", "create", "patch")),
			grant("to report the Secrets of their kubeconfigs",
				"authentication.liqo.io", on("identities/status"), do("patch")),
			grant("to complete ResourceSlices, and to hold them until their copies are deleted",
				"authentication.liqo.io", on("resourceslices"), do("get", "list", "watch", "patch")),
			grant("to report the answers of providers",
				"authentication.liqo.io", on("resourceslices/status"), do("patch")),
			grant("to set owner references, where OwnerReferencesPermissionEnforcement is enabled",
				"authentication.liqo.io", on("identities/finalizers", "resourceslices/finalizers"), do("update")),
			grant("to create the VirtualNodes that ResourceSlices request, and to delete them before their ResourceSlices",
				"offloading.liqo.io", on("virtualnodes"), do("create", "delete")),
			grant("to get access to the Secrets of tenant namespaces with this role and no other",
				"rbac.authorization.k8s.io", on("clusterroles"), do("bind"), CredentialsRolePlaceholder),
		},
	}
}

// ControllerManagerCredentials returns the permissions of the controller manager of a consumer in the tenant namespaces
// of the providers that it joins by Liqo's protocol. The names of the Secrets are not known in advance. The chart's
// admission policies restrict its writes to the Secrets of Identities.
func ControllerManagerCredentials() Role {
	return Role{
		Name:    "controller-manager-credentials",
		Purpose: "the controller manager, in the tenant namespaces of the providers that it joins by Liqo's protocol",
		Scope:   TenantScope,
		Rules: []Rule{
			grant("to write the kubeconfigs of Identities, to read them, and to let virtual kubelets read them",
				"", on("secrets"), do("get", "list", "watch", "create", "update")),
		},
	}
}

// ControllerManagerClusterKey returns the permissions that the controller manager of a consumer needs in its own
// namespace to join providers by Liqo's protocol.
func ControllerManagerClusterKey() Role {
	return Role{
		Name:    "controller-manager-cluster-key",
		Purpose: "the controller manager, in its own namespace, where it joins providers by Liqo's protocol",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to create the key of this cluster, and to sign with it (the chart installs the Secret empty, because create cannot be restricted by name)",
				"", on("secrets"), do("get", "update"), wire.ClusterKeySecret),
		},
	}
}

// ControllerManagerAddresses returns the additional permissions of the controller manager to grant the ranges and
// addresses of the network between the clusters.
func ControllerManagerAddresses() Role {
	return Role{
		Name:    "controller-manager-addresses",
		Purpose: "the controller manager, where it grants the addresses of the network between the clusters",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to read the ranges of peers, to fill in those of this cluster, and to label Configurations that are complete",
				"networking.liqo.io", on("configurations"), do("get", "list", "watch", "patch")),
			grant("to publish the ranges by which this cluster reaches a peer",
				"networking.liqo.io", on("configurations/status"), do("patch")),
			grant("to set owner references, where OwnerReferencesPermissionEnforcement is enabled",
				"networking.liqo.io", on("configurations/finalizers"), do("update")),
			grant("to ask for these ranges, to delete those of former ranges of a peer, and to remove the finalizers of Liqo's IPAM",
				"ipam.liqo.io", on("networks"), do("get", "list", "watch", "create", "patch", "delete")),
			grant("to read who asks for an address, and to remove the finalizers of Liqo's IPAM",
				"ipam.liqo.io", on("ips"), do("get", "list", "watch", "patch")),
			grant("to grant ranges and addresses",
				"ipam.liqo.io", on("networks/status", "ips/status"), do("patch")),
		},
	}
}

// ControllerManagerGateways returns the additional permissions of the controller manager to run the gateways of the network
// between the clusters. The chart's admission policies restrict what it creates to gateways in tenant namespaces. It can
// create the private keys of gateways, but not read them.
func ControllerManagerGateways() Role {
	return Role{
		Name:    "controller-manager-gateways",
		Purpose: "the controller manager, where it runs the gateways of the network between the clusters",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to read which gateways to run",
				"networking.liqo.io", on("gatewayservers", "gatewayclients"), do("get", "list", "watch")),
			grant("to publish where peers reach them",
				"networking.liqo.io", on("gatewayservers/status", "gatewayclients/status"), do("patch")),
			grant("to read how to run them",
				"networking.liqo.io", on("wggatewayservertemplates", "wggatewayclienttemplates"), do("get", "list", "watch")),
			grant("to create their keys, which it cannot read",
				"", on("secrets"), do("create")),
			grant("to see which of their keys the peers accept",
				"networking.liqo.io", on("publickeies"), do("get", "list", "watch")),
			grant("to create their ServiceAccounts",
				"", on("serviceaccounts"), do("create")),
			grant("to run them",
				"apps", on("deployments"), do("get", "list", "watch", "create", "patch")),
			grant("to keep one pod of each running while nodes are drained",
				"policy", on("poddisruptionbudgets"), do("create")),
			grant("to let peers reach them",
				"", on("services"), do("get", "list", "watch", "create", "patch")),
			grant("to request the addresses by which peers see nodes, and to replace those of nodes with a new address",
				"ipam.liqo.io", on("ips"), do("get", "list", "watch", "create", "delete")),
			grant("to grant them access to their tenant namespace",
				"rbac.authorization.k8s.io", on("rolebindings"), do("create")),
			grant("to let them read the addresses of nodes and of the targets of IPs",
				"rbac.authorization.k8s.io", on("clusterrolebindings"), do("create")),
			grant("to grant these roles and no others",
				"rbac.authorization.k8s.io", on("clusterroles"), do("bind"), GatewayRolePlaceholder, GatewayNodesRolePlaceholder),
		},
	}
}

// ControllerManagerPodAddresses returns the additional permissions of the controller manager to request addresses for
// offloaded pods. With the permissions of ControllerManagerGateways, it requests them.
func ControllerManagerPodAddresses() Role {
	return Role{
		Name:    "controller-manager-pod-addresses",
		Purpose: "the controller manager, where pods of one provider reach those of another one through this cluster",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to read the addresses of offloaded pods",
				"", on("pods"), do("get", "list", "watch")),
		},
	}
}

// ControllerManagerGatewayKeys returns the additional permissions of the controller manager to replace the keys of gateways. The
// chart grants them only together with the admission policy that restricts them to Secrets with keys of gateways.
func ControllerManagerGatewayKeys() Role {
	return Role{
		Name:    "controller-manager-gateway-keys",
		Purpose: "the controller manager, where it replaces the keys of gateways after a while",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to delete the keys that others have replaced",
				"", on("secrets"), do("delete")),
		},
	}
}

// ControllerManagerNodeFailure returns the additional permissions of the controller manager to force-delete the pods
// of failed nodes. The chart's admission policies restrict these permissions to pods of ShadowPods that are already
// being deleted.
func ControllerManagerNodeFailure() Role {
	return Role{
		Name:    "controller-manager-node-failure",
		Purpose: "the controller manager, where the node failure controller is enabled",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to force-delete the pods of a failed node",
				"", on("pods"), do("delete")),
		},
	}
}

// ControllerManagerPlugins returns the additional permissions of the controller manager to fetch and store the
// modules of ReflectionPlugins. The chart's admission policies allow no other client to create, change or delete
// revisions and modules.
func ControllerManagerPlugins() Role {
	return Role{
		Name:    "controller-manager-plugins",
		Purpose: "the controller manager, where declared plugins are enabled",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to read the declarations of plugins",
				"plugins.refract.io", on("reflectionplugins"), do("get", "list", "watch")),
			grant("to report progress",
				"plugins.refract.io", on("reflectionplugins/status"), do("patch")),
			grant("to create the revisions of plugins, and to delete old ones",
				"plugins.refract.io", on("pluginrevisions"), do("get", "list", "watch", "create", "delete")),
			grant("to store their modules, and to delete those that no revision names",
				"plugins.refract.io", on("pluginmodules"), do("get", "list", "create", "delete")),
			grant("to remove the entries of deleted virtual nodes from their status",
				"plugins.refract.io", on("pluginrevisions/status"), do("patch")),
			grant("to read which virtual nodes there are",
				"", on("nodes"), do("get", "list")),
			grant("to read which there are whose Node is not registered",
				"offloading.liqo.io", on("virtualnodes"), do("list")),
		},
	}
}

// ControllerManagerPluginSources returns the permissions that the controller manager needs in its own namespace to
// fetch the modules of ReflectionPlugins.
func ControllerManagerPluginSources() Role {
	return Role{
		Name:    "controller-manager-plugin-sources",
		Purpose: "the controller manager, in its own namespace, where declared plugins are enabled",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to read modules, and to follow their changes",
				"", on("configmaps"), do("get", "list", "watch")),
			grant("to read the credentials and the certificate authorities of registries, whose names users choose",
				"", on("secrets"), do("get")),
		},
	}
}

// ControllerManagerLeaderElection returns the permissions that replicas of the controller manager need in their own
// namespace to elect a leader.
func ControllerManagerLeaderElection() Role {
	return Role{
		Name:    "controller-manager-leader-election",
		Purpose: "the controller manager, in its own namespace",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to take part in the election (create cannot be restricted by name)",
				"coordination.k8s.io", on("leases"), do("create")),
			grant("to hold, renew and release the lease",
				"coordination.k8s.io", on("leases"), do("get", "update"), LeaderElectionID, BesideLiqoElectionID),
			grant("to elect a leader",
				"", on("events"), do("create", "patch")),
		},
	}
}

// ControllerManagerWebhook returns the permissions that every replica of the controller manager needs in its own
// namespace to serve the admission webhook.
func ControllerManagerWebhook() Role {
	return Role{
		Name:    "controller-manager-webhook",
		Purpose: "the controller manager, in its own namespace, when it serves the admission webhook",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to share the CA of the webhook's certificates between replicas, and to renew it (the chart installs the Secret empty, because create cannot be restricted by name)",
				"", on("secrets"), do("get", "list", "watch", "update"), WebhookName),
		},
	}
}

// WebhookName is the name of all objects of the admission webhook: its configuration, its Service, and the Secret
// with the CA of its certificates.
const WebhookName = "refract-webhook"

// LeaderElectionID is the name of the leader election lease of the controller manager. It is the same as Liqo's, so
// that our controller manager waits while a controller manager of Liqo is still running, instead of working at the
// same time.
const LeaderElectionID = "66cf253f.ctrlmgr.liqo.io"

// BesideLiqoElectionID is the name of the lease of a controller manager that intentionally runs at the same time as
// Liqo's. Such a controller manager does not offload anything.
const BesideLiqoElectionID = "refract.ctrlmgr.liqo.io"
