// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for ConfigMaps. As in Liqo's configuration data reflection, they are reflected unchanged: data,
// binaryData, immutable, and fields of newer Kubernetes versions. Labels and annotations that the virtual node excludes
// from reflection are removed.
//
// The ConfigMap kube-root-ca.crt is reflected under another name, because each namespace of the provider has its own
// ConfigMap of this name. The reflection engine chooses the name, so the plugin treats this ConfigMap like any other.
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
