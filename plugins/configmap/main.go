// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for ConfigMaps. They cross verbatim (Liqo: configuration
// data): data, binaryData, immutable, and what later versions of Kubernetes
// add. Of the metadata, the labels and annotations that the virtual node does
// not want reflected stay on this cluster.
//
// The ConfigMap kube-root-ca.crt, of which each namespace of the provider has
// one of its own, crosses under another name. Names are the engine's business,
// and so the plugin sees a ConfigMap like any other.
package main

import "github.com/refract-project/refract/sdk"

var plugin = sdk.Register(sdk.Manifest{
	Name:    "configmap",
	Version: "1.0.0",
	Kinds:   []string{"ConfigMap"},
	Writes:  []string{"metadata.labels", "metadata.annotations"},
}, sdk.Outgoing(outgoing))

func main() {}

func outgoing(ctx sdk.Context, configMap sdk.Object) error {
	sdk.FilterMetadata(ctx, configMap)
	return nil
}
