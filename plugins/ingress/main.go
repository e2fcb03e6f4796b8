// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for Ingresses. As in Liqo's Ingress reflection, they are reflected unchanged except for the class,
// which is replaced by the class that was negotiated with the provider. In detail, on the way to the provider:
//
//   - spec.ingressClassName becomes the class that was negotiated with the provider. Without such a class it is
//     removed, because the provider may not know the consumer's class, or may use its name for another class.
//   - The annotation kubernetes.io/ingress.class, the predecessor of the field, is removed, because Kubernetes rejects
//     the annotation together with the field.
//   - All other fields are unchanged: rules, backends, TLS, and fields of newer Kubernetes versions. Labels and
//     annotations that the virtual node excludes from reflection are removed.
//
// On the way back, the status is reflected, with the addresses of the provider's ingress controller
// (status.loadBalancer).
//
//   - IP addresses are remapped to the addresses that the consumer uses. An address without a mapping (yet) is removed
//     with a warning, because on the consumer it may belong to another machine. An entry that becomes empty is
//     removed.
//   - Host names and ports have the same meaning in all clusters and are unchanged.
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

// incoming mutates the status of the provider's Ingress before the status is written to the consumer's Ingress.
func incoming(ctx sdk.Context, ingress sdk.Object) error {
	sdk.RemapLoadBalancer(ctx, ingress)
	return nil
}
