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
