// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for Ingresses. What users know (Liqo: Ingress reflection)
// is: verbatim, but for the class, which the provider's default takes the place
// of. In detail, on the way to the provider:
//
//   - spec.ingressClassName becomes the class negotiated with the provider, or
//     goes: the consumer's own may mean nothing there, or something else.
//   - The annotation kubernetes.io/ingress.class, which said the same before
//     there was a field, goes. Kubernetes refuses both together.
//   - Everything else crosses as it is: rules, backends, TLS, and what later
//     versions of Kubernetes add. Of the metadata, the labels and annotations
//     that the virtual node does not want reflected stay on this cluster.
//
// On the way back the status crosses: where the provider's ingress controller
// listens (status.loadBalancer).
//
//   - IP addresses are remapped to what the consumer reaches them by. One that
//     has no such address (yet) is left out, with a warning: shown as it is, it
//     may belong to somebody else here. An entry of which nothing is left goes.
//   - Host names mean the same everywhere and stay, and so do the ports.
package main

import (
	"github.com/refract-project/refract/sdk"
)

var plugin = sdk.Register(sdk.Manifest{
	Name:    "ingress",
	Version: "1.0.0",
	Kinds:   []string{"Ingress.networking.k8s.io"},
	Writes:  []string{"metadata.labels", "metadata.annotations", "spec", "status"},
}, sdk.Outgoing(outgoing), sdk.Incoming(incoming))

func main() {}

const (
	className       = "spec.ingressClassName"
	classAnnotation = "metadata.annotations[kubernetes.io/ingress.class]"
)

func outgoing(ctx sdk.Context, ingress sdk.Object) error {
	sdk.FilterMetadata(ctx, ingress)
	if ingress.Remove(classAnnotation) > 0 {
		ingress.Annotations().Prune()
	}
	if class := ctx.IngressClass(); class != "" {
		ingress.SetString(className, class)
	} else {
		ingress.Remove(className)
	}
	return nil
}

// incoming reflects the status of the provider's Ingress.
func incoming(ctx sdk.Context, ingress sdk.Object) error {
	sdk.RemapLoadBalancer(ctx, ingress)
	return nil
}
