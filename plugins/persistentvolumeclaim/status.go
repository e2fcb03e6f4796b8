// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/refract-project/refract/sdk"

// incoming reflects the status of the provider's claim. The phase and the access modes are not changed, because the
// consumer's own control plane determines them. Fields that name a VolumeAttributesClass are not changed either,
// because this class is not reflected.
//
// The status is not changed before the consumer's claim is bound, because the consumer's control plane would revert the
// change.
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
		// The provider's claim has no volume yet, so the consumer's claim keeps its capacity.
		keep(claim, local, "status.capacity")
	}
	return nil
}

// keep replaces the value at path with the value in the consumer's claim. If the consumer's claim has no value, keep
// removes the field.
func keep(claim, local sdk.Object, path string) {
	if present := local.Get(path); present.Exists() {
		claim.Copy(path, present)
	} else {
		claim.Remove(path)
	}
}
