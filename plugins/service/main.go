// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for Services. As in Liqo's Service reflection, they are reflected unchanged except for the cluster
// IPs, the load balancer IP and the node ports, which the provider assigns. In detail:
//
//   - clusterIP and clusterIPs are removed, except for the value "None" of a headless Service.
//   - ipFamilies are also removed, because each cluster assigns them together with the addresses and rejects a family
//     that it does not have. ipFamilyPolicy stays, so that a Service that requires two families also requires them on
//     the provider. In a headless Service without a selector, ipFamilies describe its endpoints and stay.
//   - Node ports, including the health check node port, are removed unless the annotation
//     liqo.io/force-remote-node-port is "true".
//   - loadBalancerClass becomes the class that was negotiated with the provider. Without such a class it is removed.
//   - The annotation liqo.io/use-direct-connections has an effect only on EndpointSlices. An invalid value causes a
//     warning on the Service, where the user has set it.
//   - All other fields are unchanged: externalIPs, sessionAffinityConfig, trafficDistribution, and fields of later
//     Kubernetes versions.
//
// On the way back, the status of a load balancer is reflected, with its addresses remapped to the addresses that the
// consumer uses.
package main

import (
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/sdk"
)

var plugin = sdk.Register(sdk.Manifest{
	Name:    "service",
	Version: "1.0.0",
	Kinds:   []string{"Service"},
	Writes:  []string{"metadata.labels", "metadata.annotations", "spec", "status"},
}, sdk.Outgoing(outgoing), sdk.Incoming(incoming))

func main() {}

// Paths of fields that are removed from Services.
const (
	always    = "spec.loadBalancerIP\nspec.loadBalancerClass"
	nodePorts = "\nspec.ports.*.nodePort\nspec.healthCheckNodePort"
	families  = "\nspec.ipFamilies"
	addresses = families + "\nspec.clusterIP\nspec.clusterIPs"
)

func outgoing(ctx sdk.Context, service sdk.Object) error {
	checkDirectConnections(ctx, service)
	kind := "" // the kind of a ClusterIP Service, the most frequent type, is left empty, so that no string is copied
	if !service.Is("spec.type", "ClusterIP") {
		kind = service.String("spec.type")
	}
	service.Remove(assigned(service, kind))
	if kind == "LoadBalancer" {
		setLoadBalancerClass(ctx, service)
	}
	// The metadata is filtered last, because annotations that are excluded from reflection also have an effect on the
	// Service.
	sdk.FilterMetadata(ctx, service)
	return nil
}

// assigned returns the paths of the fields that the provider assigns in a Service of the given type.
func assigned(service sdk.Object, kind string) string {
	switch kind {
	case "NodePort", "LoadBalancer":
		if service.Is("metadata.annotations["+wire.ForceRemoteNodePortAnnotation+"]", "true") {
			return always + addresses
		}
	default:
		if service.Is("spec.clusterIP", "None") {
			return assignedHeadless(service)
		}
	}
	return always + addresses + nodePorts
}

// assignedHeadless returns the paths of the fields that the provider assigns to a Service without a cluster IP.
func assignedHeadless(service sdk.Object) string {
	if service.Len("spec.selector") == 0 {
		return always
	}
	return always + families
}

// setLoadBalancerClass sets the load balancer class that was negotiated with the provider. The provider does not know
// the consumer's class.
func setLoadBalancerClass(ctx sdk.Context, service sdk.Object) {
	if class := ctx.LoadBalancerClass(); class != "" {
		service.SetString("spec.loadBalancerClass", class)
	}
}

// checkDirectConnections emits a warning if the annotation liqo.io/use-direct-connections has an invalid value.
func checkDirectConnections(ctx sdk.Context, service sdk.Object) {
	value, set := service.Lookup("metadata.annotations[" + wire.UseDirectConnectionsAnnotation + "]")
	if !set {
		return
	}
	if _, valid := wire.UsesDirectConnections(value); !valid {
		ctx.Warn("annotation ", wire.UseDirectConnectionsAnnotation, " is \"", value, "\": use \"true\" or \"false\". Until then, traffic between providers goes through this cluster")
	}
}

// incoming mutates the status of the provider's load balancer before the status is written to the consumer's Service.
func incoming(ctx sdk.Context, service sdk.Object) error {
	sdk.RemapLoadBalancer(ctx, service)
	return nil
}
