// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for ConfigMaps. They cross unchanged (Liqo:
// configuration data): data, binaryData, immutable, and fields
// of later Kubernetes versions. Labels and annotations that the
// virtual node excludes from reflection stay on this cluster.
//
// The ConfigMap kube-root-ca.crt crosses under another name, because
// each namespace of the provider has its own. The engine chooses the
// names, so the plugin treats it like any other ConfigMap.
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
