// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for Ingresses. They cross unchanged (Liqo:
// Ingress reflection), except for the class, which is replaced by
// the provider's default. In detail, on the way to the provider:
//
//   - spec.ingressClassName becomes the class negotiated with the provider, or is
//     removed: the consumer's class may be unknown there, or mean something else.
//   - The annotation kubernetes.io/ingress.class, the predecessor
//     of the field, is removed. Kubernetes refuses both together.
//   - Everything else is unchanged: rules, backends, TLS, and fields
//     of later Kubernetes versions. Labels and annotations that the
//     virtual node excludes from reflection stay on this cluster.
//
// On the way back the status crosses, with the addresses of
// the provider's ingress controller (status.loadBalancer).
//
//   - IP addresses are remapped to the ones that the consumer uses. An
//     address without a mapping (yet) is omitted, with a warning: it may
//     belong to somebody else here. An entry that becomes empty is removed.
//   - Host names and ports mean the same everywhere and are unchanged.
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
