// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for Services. They cross unchanged (Liqo:
// Service reflection), except for the cluster IPs, the load-balancer
// IP and the node ports, which the provider assigns. In detail:
//
//   - clusterIP and clusterIPs are removed; "None" (headless) is kept.
//   - ipFamilies are removed, too: each cluster assigns them with the
//     addresses and refuses a family it does not have. ipFamilyPolicy is
//     kept, so a Service that requires two families still does. A headless
//     Service without selector keeps them: there they describe its endpoints.
//   - node ports, including the health-check node port, are removed
//     unless the annotation liqo.io/force-remote-node-port is "true".
//   - loadBalancerClass becomes the negotiated class, or is removed.
//   - the annotation liqo.io/use-direct-connections is for EndpointSlices.
//     An invalid value causes a warning here, where the user set it.
//   - everything else is unchanged: externalIPs, sessionAffinityConfig,
//     trafficDistribution, and fields of later Kubernetes versions.
//
// On the way back the status of a load balancer crosses, with
// its addresses remapped to the ones that the consumer uses.
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

// Removed paths.
const (
	always    = "spec.loadBalancerIP\nspec.loadBalancerClass"
	nodePorts = "\nspec.ports.*.nodePort\nspec.healthCheckNodePort"
	families  = "\nspec.ipFamilies"
	addresses = families + "\nspec.clusterIP\nspec.clusterIPs"
)

func outgoing(ctx sdk.Context, service sdk.Object) error {
	checkDirectConnections(ctx, service)
	kind := "" // stays empty for most Services, so that no text is copied
	if !service.Is("spec.type", "ClusterIP") {
		kind = service.String("spec.type")
	}
	service.Remove(assigned(service, kind))
	if kind == "LoadBalancer" {
		setLoadBalancerClass(ctx, service)
	}
	// Filter last: an excluded annotation still affects the Service.
	sdk.FilterMetadata(ctx, service)
	return nil
}

// assigned returns the paths of the fields that the provider assigns.
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

// assignedHeadless returns these paths for a Service without cluster IP.
func assignedHeadless(service sdk.Object) string {
	if service.Len("spec.selector") == 0 {
		return always
	}
	return always + families
}

// setLoadBalancerClass sets the negotiated class. The
// consumer's class has no meaning for the provider.
func setLoadBalancerClass(ctx sdk.Context, service sdk.Object) {
	if class := ctx.LoadBalancerClass(); class != "" {
		service.SetString("spec.loadBalancerClass", class)
	}
}

// checkDirectConnections warns about an invalid value of the annotation.
func checkDirectConnections(ctx sdk.Context, service sdk.Object) {
	value, set := service.Lookup("metadata.annotations[" + wire.UseDirectConnectionsAnnotation + "]")
	if !set {
		return
	}
	if _, valid := wire.UsesDirectConnections(value); !valid {
		ctx.Warn("annotation ", wire.UseDirectConnectionsAnnotation, " is \"", value, "\": use \"true\" or \"false\". Until then, traffic between providers goes through this cluster")
	}
}

// incoming reflects the status of the provider's load balancer on the consumer's
// Service.
func incoming(ctx sdk.Context, service sdk.Object) error {
	sdk.RemapLoadBalancer(ctx, service)
	return nil
}
