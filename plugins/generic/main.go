// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// The default plugin of kinds without a default plugin of their own: usually
// custom resources, whose fields only their operators understand. Objects cross
// unchanged, except that labels and annotations that the virtual node excludes
// from reflection stay on this cluster. On the way back nothing is changed.
//
// Its kind is "*", but it is not in the chains of kinds
// that have a default plugin: see package host/source.
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
