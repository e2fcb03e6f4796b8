// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin for kinds that have no default plugin of their own. These are usually custom resources, whose
// fields only their operators understand. Labels and annotations that the virtual node excludes from reflection are
// removed, and all other fields are reflected unchanged. Statuses are reflected back unchanged.
//
// Its manifest declares the kind "*". Nevertheless it does not run for kinds that have their own default plugin: see
// package host/source.
package main

import "github.com/refract-project/refract/sdk"

var plugin = sdk.Register(sdk.Manifest{
	Name:    "generic",
	Version: "1.0.0",
	Kinds:   []string{"*"},
	Writes:  []string{"metadata.labels", "metadata.annotations"},
}, sdk.Outgoing(outgoing))

func main() {}

func outgoing(ctx sdk.Context, object sdk.Object) error {
	sdk.FilterMetadata(ctx, object)
	return nil
}
