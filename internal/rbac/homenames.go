// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import "github.com/refract-project/refract/api/wire"

// HomeNames returns the permissions of the resolver of a consumer's DNS names, in the tenant namespace of the consumer.
func HomeNames() Role {
	return Role{
		Name:    "home-names",
		Purpose: "the resolver of the DNS names that the pods of a consumer have in their own cluster",
		Scope:   TenantScope,
		Rules: []Rule{
			grant("to translate the namespaces in the names",
				"offloading.liqo.io", on("namespacemaps"), do("get", "list", "watch")),
		},
	}
}

// HomeNamesAddresses returns the additional permissions of a resolver that answers with the cluster IPs of the consumer's cluster.
func HomeNamesAddresses() Role {
	return Role{
		Name:    "home-names-addresses",
		Purpose: "the resolvers of DNS names that answer with the cluster IPs of the consumer's cluster (homeNames.addresses)",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to read the cluster IPs that Services have in the consumer's cluster",
				"", on("services"), do("get", "list", "watch")),
			grant("to know whether the node of a pod translates these addresses yet",
				"", on("pods"), do("get", "list", "watch")),
		},
	}
}

// ControllerManagerHomeNames returns the additional permissions of the controller manager in the tenant namespace of a
// consumer whose pods resolve the names of their own cluster.
func ControllerManagerHomeNames() Role {
	return Role{
		Name:    "controller-manager-home-names",
		Purpose: "the controller manager, in the tenant namespace of a consumer whose pods resolve the DNS names of their own cluster",
		Scope:   TenantScope,
		Rules: []Rule{
			grant("to set the resolver in new pods",
				"", on("services"), do("get"), wire.HomeNamesService),
		},
	}
}
