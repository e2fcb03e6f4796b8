// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// GatewayTenant returns the permissions of a gateway in the tenant namespace of its peer.
func GatewayTenant() Role {
	return Role{
		Name:    "gateway",
		Purpose: "the gateway of one peering, in the tenant namespace of the peer",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to read the ranges and the key of the peer",
				"networking.liqo.io", on("configurations", "publickeies"), do("get", "list", "watch")),
			grant("to read its own settings",
				"networking.liqo.io", on("gatewayservers", "gatewayclients"), do("get", "list", "watch"), GatewayPlaceholder),
			grant("to read its own keys",
				"", on("secrets"), do("get", "list", "watch"), GatewaySecretPlaceholder),
			grant("to report whether the peer answers",
				"networking.liqo.io", on("connections"), do("create")),
			grant("to read what it has reported before, also in an earlier process",
				"networking.liqo.io", on("connections"), do("get", "list", "watch"), "gw-"+GatewayPlaceholder),
			grant("to report changes of it",
				"networking.liqo.io", on("connections/status"), do("patch"), "gw-"+GatewayPlaceholder),
			grant("to report why objects are not applied, and that pods take over from each other too often",
				"", on("events"), do("create", "patch")),
			grant("to elect the active one of several pods",
				"coordination.k8s.io", on("leases"), do("create")),
			grant("to see which pod was elected, and to take over from it",
				"coordination.k8s.io", on("leases"), do("get", "list", "watch", "update"), "gw-"+GatewayPlaceholder),
			grant("to lead nodes to the elected pod",
				"networking.liqo.io", on("gatewayservers/status", "gatewayclients/status"), do("patch"), GatewayPlaceholder),
		},
	}
}

// GatewayInstallation returns the permissions of gateways and agents in the namespace of the installation.
func GatewayInstallation() Role {
	return Role{
		Name:    "gateway-installation",
		Purpose: "gateways and the agents of nodes, in the namespace of the installation",
		Scope:   NamespaceScope,
		Rules: []Rule{
			grant("to read the addresses by which peers see the nodes",
				"ipam.liqo.io", on("ips"), do("get", "list", "watch")),
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
		},
	}
}

// GatewayAgent returns the permissions that the agents of nodes have beyond those that they share with gateways. They write nothing.
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

// Gateway identifies the gateway of one peering.
type Gateway struct {
	// Prefix is the prefix of the names of the roles. An empty prefix means DefaultPrefix.
	Prefix string
	// Namespace is the tenant namespace of the peer.
	Namespace string
	// Name is the name of the GatewayServer or GatewayClient.
	Name string
	// Secret is the name of the Secret in Namespace with the keys.
	Secret string
	// Installation is the namespace of the installation.
	Installation string
	// Subject is the identity of the gateway.
	Subject rbacv1.Subject
}

// Objects returns the roles and bindings of the gateway. The namespaces must exist.
func (g Gateway) Objects() []Object {
	tenant := GatewayTenant()
	name := prefixed(g.Prefix, tenant.Name) + "-" + g.Name
	replace := strings.NewReplacer(GatewayPlaceholder, g.Name, GatewaySecretPlaceholder, g.Secret)
	return append([]Object{
		tenant.role(g.Namespace, name, replace),
		roleBinding(g.Namespace, name, "Role", name, g.Subject),
	}, readersOfNodes(g.Prefix, g.Installation, "-"+g.Namespace+"-"+g.Name, g.Subject)...)
}

// GatewayAgents identifies the agents of all nodes.
type GatewayAgents struct {
	// Prefix is the prefix of the names of the roles. An empty prefix means DefaultPrefix.
	Prefix string
	// Installation is the namespace of the installation.
	Installation string
	// Subject is the identity of the agents.
	Subject rbacv1.Subject
}

// Objects returns the roles and bindings of the agents. The namespace must exist.
func (a GatewayAgents) Objects() []Object {
	name := prefixed(a.Prefix, GatewayAgent().Name)
	return append([]Object{
		GatewayAgent().clusterRole(name, strings.NewReplacer()),
		clusterRoleBinding(name, name, a.Subject),
	}, readersOfNodes(a.Prefix, a.Installation, "-agents", a.Subject)...)
}

// readersOfNodes returns the roles that gateways and agents share, and their bindings for one subject, whose names end with the suffix.
func readersOfNodes(prefix, installation, suffix string, subject rbacv1.Subject) []Object {
	nodes, addresses := prefixed(prefix, GatewayNodes().Name), prefixed(prefix, GatewayInstallation().Name)
	none := strings.NewReplacer()
	return []Object{
		GatewayNodes().clusterRole(nodes, none),
		clusterRoleBinding(nodes+suffix, nodes, subject),
		GatewayInstallation().role(installation, addresses, none),
		roleBinding(installation, addresses+suffix, "Role", addresses, subject),
	}
}
