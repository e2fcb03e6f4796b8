// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/refract-project/refract/api/wire"
)

// GatewayTenant returns the permissions of a gateway in the tenant namespace of its peer. Its keys are mounted, so that it
// needs no permission to read Secrets.
func GatewayTenant() Role {
	return Role{
		Name:    "gateway",
		Purpose: "the gateway of one peering, in the tenant namespace of the peer",
		Scope:   TenantScope,
		Rules: []Rule{
			grant("to read its own settings, the ranges and the key of the peer",
				"networking.liqo.io", on("gatewayservers", "gatewayclients", "configurations", "publickeies"), do("get", "list", "watch")),
			grant("to record which keys the peer announces and accepts, where gateways replace their keys without losing the connection",
				"networking.liqo.io", on("publickeies"), do("patch")),
			grant("to lead the Service of the gateway to the active pod",
				"discovery.k8s.io", on("endpointslices"), do("get", "list", "watch", "patch"), wire.GatewayElection),
			grant("to report whether the peer answers, and to read what an earlier process has reported",
				"networking.liqo.io", on("connections"), do("get", "list", "watch", "create")),
			grant("to report changes of it",
				"networking.liqo.io", on("connections/status"), do("patch")),
			grant("to report why objects are not applied, and that pods take over from each other too often",
				"", on("events"), do("create", "patch")),
			grant("to elect the active one of several pods",
				"coordination.k8s.io", on("leases"), do("create")),
			grant("to see which pod was elected, and to take over from it",
				"coordination.k8s.io", on("leases"), do("get", "list", "watch", "update"), wire.GatewayElection),
			grant("to lead nodes to the elected pod",
				"networking.liqo.io", on("gatewayservers/status", "gatewayclients/status"), do("patch")),
		},
	}
}

// GatewayNodes returns the permissions of gateways and agents in the whole cluster.
func GatewayNodes() Role {
	return Role{
		Name:    "gateway-nodes",
		Purpose: "gateways and the agents of nodes",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to read the addresses and the pod ranges of nodes",
				"", on("nodes"), do("get", "list", "watch")),
			grant("to read the addresses by which peers see the nodes, and those by which they reach the targets of IPs in all namespaces",
				"ipam.liqo.io", on("ips"), do("get", "list", "watch")),
		},
	}
}

// GatewayPods returns the permissions that gateways need in addition to GatewayNodes, where the addresses of pods are
// outside of the pod ranges of their nodes. The chart adds them to the role GatewayNodes.
func GatewayPods() Role {
	return Role{
		Name:    "gateway-pods",
		Purpose: "gateways that find the nodes of pods (networking.gateways.podRoutes)",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to find the node of each pod",
				"", on("pods"), do("get", "list", "watch")),
		},
	}
}

// GatewayAgent returns the permissions of the agents on nodes in addition to the permissions that they share with
// gateways. Agents write nothing.
func GatewayAgent() Role {
	return Role{
		Name:    "gateway-agent",
		Purpose: "the agents of nodes, which connect them to the gateways of all peers",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to read the ranges of all peers, and where their gateways are",
				"networking.liqo.io", on("configurations", "gatewayservers", "gatewayclients"), do("get", "list", "watch")),
		},
	}
}

// GatewayAgentAddresses returns the permissions of agents that translate, for the pods of consumers, the cluster IPs that Services have in
// the consumer's cluster.
func GatewayAgentAddresses() Role {
	return Role{
		Name:    "gateway-agent-addresses",
		Purpose: "the agents of nodes that translate the cluster IPs of consumers (homeNames.addresses)",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to know which consumer a namespace belongs to, and which pods of consumers have which addresses",
				"", on("namespaces", "pods"), do("get", "list", "watch")),
			grant("to read the cluster IPs that Services have in the consumer's cluster",
				"", on("services"), do("get", "list", "watch")),
			grant("to connect the pods of consumers to the endpoints of these Services",
				"discovery.k8s.io", on("endpointslices"), do("get", "list", "watch")),
		},
	}
}

// Gateways identifies the gateways of an installation.
type Gateways struct {
	// Prefix is the prefix of the names of the roles. An empty prefix means DefaultPrefix.
	Prefix string
}

// Roles returns the roles of all gateways. The namespace must exist.
func (g Gateways) Roles() []Object {
	none := strings.NewReplacer()
	return []Object{
		GatewayTenant().clusterRole(prefixed(g.Prefix, GatewayTenant().Name), none),
		GatewayNodes().clusterRole(prefixed(g.Prefix, GatewayNodes().Name), none),
	}
}

// Bindings returns the bindings of the roles for the gateway of a tenant namespace, whose identity is the subject. The
// controller manager creates them.
func (g Gateways) Bindings(tenantNamespace string, subject rbacv1.Subject) []Object {
	tenant, nodes := prefixed(g.Prefix, GatewayTenant().Name), prefixed(g.Prefix, GatewayNodes().Name)
	return []Object{
		roleBinding(tenantNamespace, tenant, "ClusterRole", tenant, subject),
		clusterRoleBinding(nodes+":"+tenantNamespace, nodes, subject),
	}
}

// GatewayAgents identifies the agents of all nodes.
type GatewayAgents struct {
	// Prefix is the prefix of the names of the roles. An empty prefix means DefaultPrefix.
	Prefix string
	// Subject is the identity of the agents.
	Subject rbacv1.Subject
	// Addresses is true if the agents translate the cluster IPs of consumers.
	Addresses bool
}

// Objects returns the roles and bindings of the agents. The namespace must exist.
func (a GatewayAgents) Objects() []Object {
	name := prefixed(a.Prefix, GatewayAgent().Name)
	nodes := prefixed(a.Prefix, GatewayNodes().Name)
	none := strings.NewReplacer()
	objects := []Object{
		GatewayAgent().clusterRole(name, none),
		clusterRoleBinding(name, name, a.Subject),
		GatewayNodes().clusterRole(nodes, none),
		clusterRoleBinding(nodes+"-agents", nodes, a.Subject),
	}
	if a.Addresses {
		home := prefixed(a.Prefix, GatewayAgentAddresses().Name)
		objects = append(objects, GatewayAgentAddresses().clusterRole(home, none), clusterRoleBinding(home, home, a.Subject))
	}
	return objects
}
