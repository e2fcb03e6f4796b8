// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for Services. What users know (Liqo: Service reflection)
// is: verbatim, but for the cluster IPs, the load-balancer IP and the node
// ports, which the provider assigns. In detail:
//
//   - clusterIP and clusterIPs go, but for headless Services ("None" stays).
//   - ipFamilies go as well, because each cluster assigns them with the
//     addresses and refuses a family it does not have; ipFamilyPolicy stays,
//     so a Service that requires two families still does. A headless Service
//     without selector keeps them: there they describe its endpoints.
//   - node ports, the health-check node port included, go unless the
//     annotation liqo.io/force-remote-node-port is "true".
//   - loadBalancerClass becomes the one negotiated with the provider, or goes.
//   - the annotation liqo.io/use-direct-connections is for the EndpointSlices;
//     a value that means nothing is a warning here, where it was written.
//   - everything else crosses as it is: externalIPs, sessionAffinityConfig,
//     trafficDistribution, and what later versions of Kubernetes add.
//
// On the way back the status of a load balancer crosses, its addresses remapped
// to what the consumer reaches them by.
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

// What goes.
const (
	always    = "spec.loadBalancerIP\nspec.loadBalancerClass"
	nodePorts = "\nspec.ports.*.nodePort\nspec.healthCheckNodePort"
	families  = "\nspec.ipFamilies"
	addresses = families + "\nspec.clusterIP\nspec.clusterIPs"
)

func outgoing(ctx sdk.Context, service sdk.Object) error {
	checkDirectConnections(ctx, service)
	kind := "" // of most Services, for which no text has to be copied
	if !service.Is("spec.type", "ClusterIP") {
		kind = service.String("spec.type")
	}
	service.Remove(assigned(service, kind))
	if kind == "LoadBalancer" {
		setLoadBalancerClass(ctx, service)
	}
	// Last: an annotation that does not cross still says how the Service does.
	sdk.FilterMetadata(ctx, service)
	return nil
}

// assigned returns the paths of what the provider assigns by itself.
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

// assignedHeadless returns them for a Service without cluster IP.
func assignedHeadless(service sdk.Object) string {
	if service.Len("spec.selector") == 0 {
		return always
	}
	return always + families
}

// setLoadBalancerClass sets the negotiated class; the consumer's own means
// nothing to the provider.
func setLoadBalancerClass(ctx sdk.Context, service sdk.Object) {
	if class := ctx.LoadBalancerClass(); class != "" {
		service.SetString("spec.loadBalancerClass", class)
	}
}

// checkDirectConnections warns of a value that means nothing.
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
