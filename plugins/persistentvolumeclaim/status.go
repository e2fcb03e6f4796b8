// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/refract-project/refract/sdk"

// incoming reflects the status of the provider's claim. The consumer's own
// control plane decides phase and access modes, so they are kept, and so are
// the fields that name a class of volume attributes, which does not cross.
//
// The status is unchanged until the consumer's claim is
// bound, because the control plane would reset a changed one.
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

// keep copies the value at path, or its absence, from the consumer's claim.
func keep(claim, local sdk.Object, path string) {
	if present := local.Get(path); present.Exists() {
		claim.Copy(path, present)
	} else {
		claim.Remove(path)
	}
}
