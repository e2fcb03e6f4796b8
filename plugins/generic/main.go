// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin of kinds without one of their own: custom resources, as a
// rule, whose fields only their operators understand. Objects cross as they
// are; of the metadata, the labels and annotations that the virtual node does
// not want reflected stay on this cluster. What comes back is not touched.
//
// Its kind is "*", and yet it is not in the chains of kinds that have a default
// plugin: see package host/source.
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
