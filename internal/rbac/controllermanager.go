// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

// ControllerManager is what the controllers need that enforce on the provider
// what consumers asked for.
func ControllerManager() Role {
	return Role{
		Name:    "controller-manager",
		Purpose: "the controller manager: makes pods of ShadowPods and EndpointSlices of ShadowEndpointSlices",
		Scope:   ClusterScope,
		Rules: []Rule{
			grant("to know what consumers ask for",
				"offloading.liqo.io", on("shadowpods", "shadowendpointslices"), do("get", "list", "watch")),
			grant("to tell how far it has come",
				"offloading.liqo.io", on("shadowpods/status"), do("patch", "update")),
			grant("to own what it makes, where owner references are checked",
				"offloading.liqo.io", on("shadowpods/finalizers", "shadowendpointslices/finalizers"), do("update")),
			grant("to make the pods, and to keep their labels and annotations as they are asked for",
				"", on("pods"), do("get", "list", "watch", "create", "patch")),
			grant("to make the EndpointSlices and keep them as they are asked for",
				"discovery.k8s.io", on("endpointslices"), do("get", "list", "watch", "create", "patch", "update")),
			grant("to know whether an origin can be reached: otherwise its endpoints are not ready",
				"core.liqo.io", on("foreignclusters"), do("get", "list", "watch")),
			grant("to know which consumer a namespace belongs to",
				"", on("namespaces"), do("get", "list", "watch")),
			grant("to tell users what could not be done",
				"", on("events"), do("create", "patch")),
			grant("to tell users what could not be done",
				"events.k8s.io", on("events"), do("create", "patch")),
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
				"coordination.k8s.io", on("leases"), do("get", "patch", "update"), LeaderElectionID),
		},
	}
}

// LeaderElectionID names the lease for which replicas of the controller
// manager compete. It is Liqo's, so that a Liqo controller manager which is
// still running keeps ours waiting rather than working beside it.
const LeaderElectionID = "66cf253f.ctrlmgr.liqo.io"
