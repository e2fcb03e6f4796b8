// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import "github.com/refract-project/refract/api/wire"

// The permission that identifies a virtual kubelet to the chart's admission policies. No API server serves the
// resource.
const (
	MarkerGroup    = "plugins.refract.io"
	MarkerResource = "virtualkubelets"
)

// AuthenticationConfigMap is the name of the ConfigMap in kube-system with the certificate authority of the client
// certificates of a cluster.
const AuthenticationConfigMap = "extension-apiserver-authentication"

// VirtualKubeletLocal returns the permissions that the virtual kubelet needs in all namespaces of its own cluster,
// because any namespace may be offloaded.
func VirtualKubeletLocal() Role {
	return Role{
		Name:    "virtual-kubelet-local",
		Purpose: "the virtual kubelet in its own cluster: reads what it reflects, writes pod status",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to run the pods of its node: to watch them, and to delete them once they have terminated on the provider",
				"", on("pods"), do("get", "list", "watch", "delete")),
			grant("to show their remote status, and to mark them as offloaded",
				"", on("pods/status"), do("patch")),
			grant("to omit endpoints that run on the provider, and to register its own node (create cannot be restricted by name)",
				"", on("nodes"), do("get", "list", "watch", "create")),
			grant("to create volumes that represent those of the provider, and to delete them when they are released (volumes are cluster-scoped)",
				"", on("persistentvolumes"), do("get", "list", "watch", "create", "patch", "delete")),
			grant("to read the virtual storage class",
				"storage.k8s.io", on("storageclasses"), do("get", "list", "watch")),
			grant("to report what could not be reflected, and to show the provider's Events",
				"", on("events"), do("create", "patch")),
			grant("to read whether the provider's API server and the network are up",
				"core.liqo.io", on("foreignclusters"), do("get", "list", "watch")),
			grant("to translate addresses, where the installation has remapped them",
				"ipam.liqo.io", on("ips"), do("get", "list", "watch")),
			grant("to get the certificate of its kubelet API signed",
				"certificates.k8s.io", on("certificatesigningrequests"), do("create", "get", "list", "watch")),
			grant("to authenticate callers of the kubelet API",
				"authentication.k8s.io", on("tokenreviews"), do("create")),
			grant("to authorize them",
				"authorization.k8s.io", on("subjectaccessreviews"), do("create")),
			grant("to be recognised by the chart's admission policies (nothing else reads this resource)",
				MarkerGroup, on(MarkerResource), do("run")),
			grant("to watch which further resources to reflect",
				"plugins.refract.io", on("reflectedresources"), do("get", "list", "watch")),
			grant("to report why one is not reflected",
				"plugins.refract.io", on("reflectedresources/status"), do("patch")),
			grant("to remove the entries of deleted virtual nodes from their status",
				"offloading.liqo.io", on("virtualnodes"), do("list")),
			grant("to watch which declared plugins are active, with which settings",
				"plugins.refract.io", on("reflectionplugins", "pluginrevisions"), do("get", "list", "watch")),
			grant("to read their modules, by name",
				"plugins.refract.io", on("pluginmodules"), do("get")),
			grant("to watch CustomResourceDefinitions, and to copy them to the provider with spec.copyDefinition",
				"apiextensions.k8s.io", on("customresourcedefinitions"), do("get", "list", "watch")),
		},
	}
}

// VirtualKubeletPlugins returns additional permissions in the role of VirtualKubeletLocal. The virtual kubelet needs
// them for declared plugins while the controller manager manages plugins; otherwise the chart leaves them out. Active
// plugins run even without these permissions, because objects would otherwise be reflected unmutated.
func VirtualKubeletPlugins() Role {
	return Role{
		Name:    "virtual-kubelet-plugins",
		Purpose: "virtual kubelets that run declared plugins, as part of virtual-kubelet-local",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to report the state of a plugin on its node (an admission policy restricts it to its own entry)",
				"plugins.refract.io", on("pluginrevisions/status"), do("patch")),
			grant("to select objects by the labels of their namespaces (only names and labels are requested)",
				"", on("namespaces"), do("get", "list", "watch")),
		},
	}
}

// ReflectedLocal returns the permissions that VirtualKubeletExtended lacks for one more resource. The statuses of the
// provider's copies are written back with patches of the resources in patched, such as "certificates/status". The role
// is granted by the users who need the resource to be reflected, and not by the installation.
func ReflectedLocal(group, resource string, patched ...string) Role {
	role := VirtualKubeletExtended()
	role.Rules = []Rule{grant("to reflect "+resource, group, on(resource), do("get", "list", "watch"))}
	if len(patched) > 0 {
		role.Rules = append(role.Rules, grant("to reflect their status back, and to annotate its origin", group, patched, do("patch")))
	}
	return role
}

// VirtualKubeletExtended returns the permissions that the virtual kubelet needs in namespaces that are offloaded to
// its provider. It does not have them in any other namespace.
func VirtualKubeletExtended() Role {
	return Role{
		Name:    "virtual-kubelet-extended",
		Purpose: "virtual kubelets, in each namespace that is offloaded to their provider",
		Scope:   ExtendedScope,
		Rules: []Rule{
			grant("to reflect Services and configuration",
				"", on("services", "configmaps", "secrets"), do("get", "list", "watch")),
			grant("to bind claims to volumes, to clear the selected node of those that get none on the provider, and to refuse pods that need them",
				"", on("persistentvolumeclaims"), do("get", "list", "watch", "patch")),
			grant("to report the size of their volumes",
				"", on("persistentvolumeclaims/status"), do("patch")),
			grant("to reflect endpoints",
				"discovery.k8s.io", on("endpointslices"), do("get", "list", "watch")),
			grant("to reflect Ingresses",
				"networking.k8s.io", on("ingresses"), do("get", "list", "watch")),
			grant("to reflect NetworkPolicies",
				"networking.k8s.io", on("networkpolicies"), do("get", "list", "watch")),
			grant("to reflect PodDisruptionBudgets",
				"policy", on("poddisruptionbudgets"), do("get", "list", "watch")),
			grant("to show Events of the provider about offloaded objects, and to delete those that the provider deleted",
				"", on("events"), do("get", "list", "delete")),
			grant("to show the provider's addresses of a Service",
				"", on("services/status"), do("patch")),
			grant("to show the provider's addresses of an Ingress",
				"networking.k8s.io", on("ingresses/status"), do("patch")),
		},
	}
}

// VirtualKubeletTokens returns additional permissions in the role of VirtualKubeletExtended. The virtual kubelet needs
// them to give offloaded pods access to the API server. The chart leaves them out if no virtual kubelet gives pods this
// access, or if all of them use Secrets that users have created.
func VirtualKubeletTokens() Role {
	return Role{
		Name:    "virtual-kubelet-tokens",
		Purpose: "virtual kubelets that let offloaded pods use this cluster's API server, as part of virtual-kubelet-extended",
		Scope:   ExtendedScope,
		Rules: []Rule{
			grant("to give offloaded pods tokens of their own service accounts",
				"", on("serviceaccounts/token"), do("create")),
		},
	}
}

// VirtualKubeletNode returns the permissions of the virtual kubelet for its own Node.
func VirtualKubeletNode() Role {
	return Role{
		Name:    "virtual-kubelet-node",
		Purpose: "one virtual kubelet: keeps its own node, and no other, up to date",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to keep labels, annotations and taints in sync with the VirtualNode",
				"", on("nodes"), do("patch"), NodeNamePlaceholder),
			grant("to keep capacity, addresses and conditions up to date",
				"", on("nodes/status"), do("patch"), NodeNamePlaceholder),
		},
	}
}

// VirtualKubeletTenant returns the permissions that the virtual kubelet needs in the tenant namespace of its
// provider.
func VirtualKubeletTenant() Role {
	return Role{
		Name:    "virtual-kubelet-tenant",
		Purpose: "one virtual kubelet, in the tenant namespace of its provider",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to read the resources of its node and the offloaded namespaces",
				"offloading.liqo.io", on("virtualnodes", "namespacemaps"), do("get", "list", "watch")),
			grant("to report whether the node is registered",
				"offloading.liqo.io", on("virtualnodes/status"), do("patch"), NodeNamePlaceholder),
			grant("to authenticate at the provider's API server; no other Secret can be read",
				"", on("secrets"), do("get", "list", "watch"), KubeconfigSecretPlaceholder),
			grant("to take part in the elections of its node and of its provider (create cannot be restricted by name)",
				"coordination.k8s.io", on("leases"), do("create")),
			grant("to hold, renew and release those leases",
				"coordination.k8s.io", on("leases"), do("get", "update"), NodeNamePlaceholder, wire.SharedLease),
		},
	}
}

// VirtualKubeletLease returns the permissions that the virtual kubelet needs to send heartbeats.
func VirtualKubeletLease() Role {
	return Role{
		Name:      "virtual-kubelet-lease",
		Purpose:   "one virtual kubelet, in kube-node-lease",
		Scope:     NamespaceScope,
		Namespace: "kube-node-lease",
		Rules: []Rule{
			grant("to start the heartbeat of its node (create cannot be restricted by name)",
				"coordination.k8s.io", on("leases"), do("create")),
			grant("to send it",
				"coordination.k8s.io", on("leases"), do("get", "update"), NodeNamePlaceholder),
		},
	}
}

// VirtualKubeletAuthentication returns the permissions that the virtual kubelet needs to verify the client
// certificate of its API server.
func VirtualKubeletAuthentication() Role {
	return Role{
		Name:      "virtual-kubelet-authentication",
		Purpose:   "virtual kubelets, in kube-system",
		Scope:     NamespaceScope,
		Namespace: "kube-system",
		Rules: []Rule{
			grant("to verify client certificates of this cluster",
				"", on("configmaps"), do("get", "list", "watch"), AuthenticationConfigMap),
		},
	}
}
