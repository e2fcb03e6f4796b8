// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/refract-project/refract/sdk"

// incoming shows on the consumer's claim what became of the provider's. Phase and
// access modes stay what the consumer's own control plane has decided, and so
// does what names a class of volume attributes, which does not cross.
//
// As long as the consumer's claim is not bound its status is not touched: the
// control plane resets what it finds there.
func incoming(ctx sdk.Context, claim sdk.Object) error {
	local := ctx.Local()
	if !local.Is("status.phase", "Bound") {
		if local.Len("status") > 0 {
			claim.Copy("status", local.Get("status"))
		} else {
			claim.SetMap("status")
		}
		return nil
	}
	if claim.Is("status.phase", "Lost") {
		ctx.Warn("the provider's claim has lost its volume: the data may be gone")
	}
	keep(claim, local, "status.phase")
	keep(claim, local, "status.accessModes")
	keep(claim, local, "status.currentVolumeAttributesClassName")
	keep(claim, local, "status.modifyVolumeStatus")
	if claim.Len("status.capacity") == 0 {
		keep(claim, local, "status.capacity") // the provider has no volume yet
	}
	return nil
}

// keep sets what the consumer's claim has at path.
func keep(claim, local sdk.Object, path string) {
	if present := local.Get(path); present.Exists() {
		claim.Copy(path, present)
	} else {
		claim.Remove(path)
	}
}
