// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/refract-project/refract/api/wire"
)

// VirtualKubeletRemote is what a consumer may do in its remote namespaces on the
// provider, and nowhere else.
func VirtualKubeletRemote() Role {
	return Role{
		Name:    "virtual-kubelet-remote",
		Purpose: "a consumer, in each of its remote namespaces",
		Scope:   ConsumerScope,
		Rules: []Rule{
			grant("to ask for pods and endpoints, which the provider's own controllers make",
				"offloading.liqo.io", on("shadowpods", "shadowendpointslices"), do("get", "list", "watch", "create", "update", "delete")),
			grant("to reflect Services and configuration, by server-side apply",
				"", on("services", "configmaps", "secrets"), do("get", "list", "watch", "create", "patch", "delete")),
			grant("to renew the tokens of its pods",
				"", on("secrets"), do("update")),
			grant("to ask for volumes, by server-side apply",
				"", on("persistentvolumeclaims"), do("get", "list", "watch", "create", "patch", "delete")),
			grant("to reflect Ingresses, by server-side apply",
				"networking.k8s.io", on("ingresses"), do("get", "list", "watch", "create", "patch", "delete")),
			grant("to read the status of its pods, and the Events about its objects",
				"", on("pods", "events"), do("get", "list", "watch")),
			grant("to end the pods that are deleted with a shorter grace period than their own",
				"", on("pods"), do("delete")),
			grant("to answer for what its pods use, where the provider measures that",
				"metrics.k8s.io", on("pods"), do("list")),
			grant("to answer for logs",
				"", on("pods/log"), do("get")),
			grant("to answer for a shell or a forwarded port: SPDY asks with create, WebSocket with get",
				"", on("pods/exec", "pods/attach", "pods/portforward"), do("create", "get")),
		},
	}
}

// ReflectedRemote is what VirtualKubeletRemote lacks for one more resource. It
// is granted by providers that want to take the resource.
func ReflectedRemote(group, resource string) Role {
	role := VirtualKubeletRemote()
	role.Rules = []Rule{grant("to reflect "+resource+", by server-side apply",
		group, on(resource), do("get", "list", "watch", "create", "patch", "delete"))}
	return role
}

// DefinitionsRemote is what VirtualKubeletRemoteClusterwide lacks for a consumer
// that may bring definitions of resources along. Whoever grants it lets the
// consumer add to the API of the whole cluster.
func DefinitionsRemote() Role {
	role := VirtualKubeletRemoteClusterwide()
	role.Rules = []Rule{grant("to copy definitions of resources (creation cannot be bound to a name)",
		"apiextensions.k8s.io", on("customresourcedefinitions"), do("get", "create"))}
	return role
}

// VirtualKubeletRemoteClusterwide is what a consumer may do in the provider's
// cluster at large.
func VirtualKubeletRemoteClusterwide() Role {
	return Role{
		Name:    "virtual-kubelet-remote-clusterwide",
		Purpose: "a consumer, outside its remote namespaces: no object at all",
		Scope:   ClusterScope,
		Rules: []Rule{{
			Reason:     "to ask whether the API server is alive, and which version it is",
			PolicyRule: rbacv1.PolicyRule{NonResourceURLs: []string{"/livez", "/readyz", "/version"}, Verbs: do("get")},
		}},
	}
}

// RemoteControlPlane is what a consumer may do in its tenant namespace on the
// provider.
func RemoteControlPlane() Role {
	return Role{
		Name:    "remote-controlplane",
		Purpose: "a consumer, in its tenant namespace",
		Scope:   ConsumerScope,
		Rules: []Rule{
			grant("to request namespaces, and to read the answer, which the provider writes",
				"offloading.liqo.io", on("namespacemaps"), do("get", "list", "watch", "create", "patch", "delete")),
			grant("to send its heartbeat for the first time (creation cannot be bound to a name)",
				"coordination.k8s.io", on("leases"), do("create")),
			grant("to send its heartbeat, without which the provider does not know whether its endpoints can be used, and to read the cluster id from it",
				"coordination.k8s.io", on("leases"), do("get", "patch"), wire.HeartbeatLease),
			grant("to renew the token with which it authenticates, before that expires",
				"", on("serviceaccounts/token"), do("create"), wire.ConsumerServiceAccount),
			grant("to know what it may use here",
				"offloading.liqo.io", on("quotas"), do("get", "list")),
		},
	}
}

// RemoteTenant is what a consumer that has joined with a Tenant may do in its tenant namespace on the provider. What it asks for it may
// write; the answers, in the status, are the provider's.
func RemoteTenant() Role {
	return Role{
		Name:    "remote-tenant",
		Purpose: "a consumer that has joined as Liqo does, in its tenant namespace",
		Scope:   ConsumerScope,
		Rules: slices.Concat(RemoteControlPlane().Rules, []Rule{
			grant("to keep its requests for namespaces up to date as Liqo does, with a replacement",
				"offloading.liqo.io", on("namespacemaps"), do("update")),
			grant("to ask for shares of the provider, and for the certificates that follow",
				"authentication.liqo.io", on("resourceslices", "renews"), do("get", "list", "watch", "create", "update", "patch", "delete")),
		}),
	}
}

// RemoteRenewal is what a consumer needs besides, in its tenant namespace, where the provider renews its client certificate.
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
