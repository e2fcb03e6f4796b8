// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/refract-project/refract/api/wire"
)

// VirtualKubeletRemote returns the permissions of a consumer in its remote namespaces on the provider. They do not
// apply in any other namespace.
func VirtualKubeletRemote() Role {
	return Role{
		Name:    "virtual-kubelet-remote",
		Purpose: "a consumer, in each of its remote namespaces",
		Scope:   ConsumerScope,
		Rules: []Rule{
			grant("to request pods and endpoints, which the provider's own controllers create",
				"offloading.liqo.io", on("shadowpods", "shadowendpointslices"), do("get", "list", "watch", "create", "update", "delete")),
			grant("to reflect Services and configuration, by server-side apply",
				"", on("services", "configmaps", "secrets"), do("get", "list", "watch", "create", "patch", "delete")),
			grant("to renew the tokens of its pods",
				"", on("secrets"), do("update")),
			grant("to request volumes, by server-side apply",
				"", on("persistentvolumeclaims"), do("get", "list", "watch", "create", "patch", "delete")),
			grant("to reflect Ingresses, by server-side apply",
				"networking.k8s.io", on("ingresses"), do("get", "list", "watch", "create", "patch", "delete")),
			grant("to read the status of its pods, and the Events about its objects",
				"", on("pods", "events"), do("get", "list", "watch")),
			grant("to shorten the grace period of pods that are being deleted",
				"", on("pods"), do("delete")),
			grant("to read the metrics of its pods, where the provider measures them",
				"metrics.k8s.io", on("pods"), do("list")),
			grant("to read logs",
				"", on("pods/log"), do("get")),
			grant("to exec, attach and forward ports: SPDY needs create, WebSocket needs get",
				"", on("pods/exec", "pods/attach", "pods/portforward"), do("create", "get")),
		},
	}
}

// RemoteNetworkPolicies returns the permissions that a consumer needs to isolate its pods. They are part of the role
// VirtualKubeletRemote. The chart leaves them out for a provider that isolates remote namespaces itself.
func RemoteNetworkPolicies() Role {
	return Role{
		Name:    "remote-network-policies",
		Purpose: "a consumer that may isolate its pods, in each of its remote namespaces, as part of virtual-kubelet-remote",
		Scope:   ConsumerScope,
		Rules: []Rule{
			grant("to reflect NetworkPolicies, by server-side apply",
				"networking.k8s.io", on("networkpolicies"), do("get", "list", "watch", "create", "patch", "delete")),
		},
	}
}

// RemoteDisruptionBudgets returns the permissions that a consumer needs to limit evictions of its pods. They are part
// of the role VirtualKubeletRemote. The chart leaves them out for a provider that must be able to drain its nodes at
// any time.
func RemoteDisruptionBudgets() Role {
	return Role{
		Name:    "remote-disruption-budgets",
		Purpose: "a consumer that may limit evictions of its pods, in each of its remote namespaces, as part of virtual-kubelet-remote",
		Scope:   ConsumerScope,
		Rules: []Rule{
			grant("to reflect PodDisruptionBudgets, by server-side apply",
				"policy", on("poddisruptionbudgets"), do("get", "list", "watch", "create", "patch", "delete")),
		},
	}
}

// ReflectedRemote returns the permissions that VirtualKubeletRemote lacks for one more resource. A provider that
// accepts the resource grants them.
func ReflectedRemote(group, resource string) Role {
	role := VirtualKubeletRemote()
	role.Rules = []Rule{grant("to reflect "+resource+", by server-side apply",
		group, on(resource), do("get", "list", "watch", "create", "patch", "delete"))}
	return role
}

// DefinitionsRemote returns the permissions that VirtualKubeletRemoteClusterwide lacks for a consumer that may
// install CRDs. With these permissions, the consumer can extend the API of the whole cluster.
func DefinitionsRemote() Role {
	role := VirtualKubeletRemoteClusterwide()
	role.Rules = []Rule{grant("to copy CustomResourceDefinitions (create cannot be restricted by name)",
		"apiextensions.k8s.io", on("customresourcedefinitions"), do("get", "create"))}
	return role
}

// VirtualKubeletRemoteClusterwide returns the permissions of a consumer in the whole cluster of the provider.
func VirtualKubeletRemoteClusterwide() Role {
	return Role{
		Name:    "virtual-kubelet-remote-clusterwide",
		Purpose: "a consumer, outside its remote namespaces: no object at all",
		Scope:   ClusterScope,
		Rules: []Rule{{
			Reason:     "to probe the API server, and to read its version",
			PolicyRule: rbacv1.PolicyRule{NonResourceURLs: []string{"/livez", "/readyz", "/version"}, Verbs: do("get")},
		}},
	}
}

// RemoteControlPlane returns the permissions of a consumer in its tenant namespace on the provider.
func RemoteControlPlane() Role {
	return Role{
		Name:    "remote-controlplane",
		Purpose: "a consumer, in its tenant namespace",
		Scope:   ConsumerScope,
		Rules: []Rule{
			grant("to request namespaces, and to read the status, which the provider writes",
				"offloading.liqo.io", on("namespacemaps"), do("get", "list", "watch", "create", "patch", "delete")),
			grant("to send its first heartbeat (create cannot be restricted by name)",
				"coordination.k8s.io", on("leases"), do("create")),
			grant("to renew its heartbeat, which keeps its endpoints ready, and to read the cluster id from it",
				"coordination.k8s.io", on("leases"), do("get", "patch"), wire.HeartbeatLease),
			grant("to renew its token before it expires",
				"", on("serviceaccounts/token"), do("create"), wire.ConsumerServiceAccount),
			grant("to read its Quotas",
				"offloading.liqo.io", on("quotas"), do("get", "list")),
			grant("to follow what it is offered here, which refractctl peer has asked for in its name",
				"authentication.liqo.io", on("resourceslices"), do("get", "list", "watch")),
		},
	}
}

// RemoteTenant returns the permissions of a consumer that has joined with a Tenant, in its tenant namespace on the
// provider. The consumer may write its requests. Only the provider may write the responses in their status.
func RemoteTenant() Role {
	return Role{
		Name:    "remote-tenant",
		Purpose: "a consumer that peered with Liqo's protocol, in its tenant namespace",
		Scope:   ConsumerScope,
		Rules: slices.Concat(RemoteControlPlane().Rules, []Rule{
			grant("to update its NamespaceMap the way Liqo does, by replacement",
				"offloading.liqo.io", on("namespacemaps"), do("update")),
			grant("to request resources of the provider, and the renewal of certificates",
				"authentication.liqo.io", on("resourceslices", "renews"), do("get", "list", "watch", "create", "update", "patch", "delete")),
		}),
	}
}

// RemoteNetwork returns the permissions that a consumer needs to connect its gateway to this cluster without the help of this
// cluster's administrator. They are part of the role RemoteControlPlane. The chart adds them if gateways are enabled.
func RemoteNetwork() Role {
	return Role{
		Name:    "remote-network",
		Purpose: "a consumer that connects to the gateway of this cluster, in its tenant namespace, as part of remote-controlplane",
		Scope:   ConsumerScope,
		Rules: []Rule{
			grant("to declare its ranges and its public key, which the controller manager and the gateway check",
				"networking.liqo.io", on("configurations", "publickeies"), do("get", "list", "create", "patch", "delete")),
			grant("to read where the gateway is",
				"networking.liqo.io", on("gatewayservers"), do("get", "list")),
		},
	}
}

// RemoteRenewal returns the additional permissions that a consumer needs in its tenant namespace if the provider
// renews its client certificate.
func RemoteRenewal() Role {
	return Role{
		Name:    "remote-renewal",
		Purpose: "a consumer whose client certificate this cluster renews, in its tenant namespace",
		Scope:   ConsumerScope,
		Rules: []Rule{
			grant("to ask for the certificate after the present one (creation cannot be bound to a name)",
				"authentication.liqo.io", on("renews"), do("create")),
			grant("to read the answer, and to remove it",
				"authentication.liqo.io", on("renews"), do("get", "delete"), wire.ConsumerRenew),
		},
	}
}

// PeeringUserComponent is a label value on the two roles of peering users. liqoctl fails unless there is exactly one
// Role and one ClusterRole with it.
const PeeringUserComponent = "peering-user"

// PeeringUserTenant returns the permissions of a peering user in the tenant namespace of its consumer. liqoctl
// generate peering-user creates this user for the consumer's administrator.
func PeeringUserTenant() Role {
	return Role{
		Name:    "peering-user-tenant-ns",
		Purpose: "a user that liqoctl generate peering-user has created, in the tenant namespace of its cluster",
		Scope:   ConsumerScope,
		Rules: []Rule{
			grant("to find the tenant namespace",
				"", on("namespaces"), do("get")),
			grant("to ask for a nonce, and to read it",
				"", on("secrets"), do("get", "list", "create", "delete")),
			grant("to present the signed nonce, and to read the answer",
				"authentication.liqo.io", on("tenants"), do("get", "list", "create", "update", "delete")),
		},
	}
}

// PeeringUserInstallation returns the permissions of a peering user in the namespace of the installation.
func PeeringUserInstallation() Role {
	return Role{
		Name:    "peering-user-liqo-ns",
		Purpose: "a user that liqoctl generate peering-user has created, in the namespace of the installation",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to read the id of this cluster, which liqoctl finds by a label (list cannot be restricted by name)",
				"", on("configmaps"), do("get", "list", "watch")),
		},
	}
}
