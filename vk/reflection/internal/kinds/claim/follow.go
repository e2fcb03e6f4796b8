// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// sizePath is the only field in the spec of a bound claim that can be changed.
const sizePath = "spec.resources.requests.storage"

// followClaim synchronizes a bound claim with the provider's claim.
func (h *handler) followClaim(ctx context.Context, w *evaluation.Worker, v *claimView) error {
	if isEphemeral(v.local) {
		return nil
	}
	if v.remote == nil {
		return h.lostClaim(ctx, v)
	}
	reason := wire.FailedReflectionReason
	if _, difference := compareSizes(sizeOf(v.local), sizeOf(v.remote)); difference != 0 {
		reason = wire.VolumeResizeFailedReason
	}
	kept := addRemedy(reason, h.reflectClaim(ctx, w, v))
	return evaluation.Directed(kept, h.showClaim(ctx, w, v))
}

// lostClaim returns an error if the provider's claim is gone. The claim must not be recreated, because the new claim
// would be empty although the volume had data.
func (h *handler) lostClaim(ctx context.Context, v *claimView) error {
	if err := h.Copies.MustBeFree(ctx, v.scope.Namespace, v.key); err != nil {
		return err
	}
	return &claimError{reason: wire.ClaimLostReason, cause: &lostError{fmt.Sprintf(
		"PersistentVolumeClaim %s/%s was deleted on the provider; the data of volume %s may be lost", v.scope.Remote, v.key.Name, v.volume.GetName())},
		remedy: "restore it there with its labels, or delete and recreate this claim"}
}

// showClaim reflects the capacity and the conditions of the provider's claim. It also writes the capacity to the
// volume, because Kubernetes shows the capacity of the volume, too.
func (h *handler) showClaim(ctx context.Context, w *evaluation.Worker, v *claimView) error {
	if !isBound(v.local) {
		return nil
	}
	next, err := h.Mutator.IncomingStatus(ctx, w, v.scope.Context(host.Incoming), v.local, v.remote)
	if err != nil || next == nil {
		return err
	}
	if err := h.resizeVolume(ctx, w, v, raw.Nested(next, "capacity", "storage")); err != nil {
		return err
	}
	if present, _ := v.local.Object["status"].(map[string]any); raw.Equal(next, present) {
		return nil
	}
	return h.Objects.PutStatus(ctx, w, v.local, next, nil)
}

// resizeVolume writes the capacity of the provider's claim to the volume that represents it.
func (h *handler) resizeVolume(ctx context.Context, w *evaluation.Worker, v *claimView, capacity any) error {
	path := []string{"spec", "capacity", "storage"}
	if _, difference := compareSizes(capacity, raw.Nested(v.volume.Object, path...)); difference == 0 {
		return nil
	}
	stored, err := h.patchVolume(ctx, w, v.key, v.volume, jsonpatch.Patch{{Op: "replace", Path: "/spec/capacity/storage", Value: capacity}})
	if err == nil {
		v.volume = stored
	}
	return err
}

// sizeOf returns the requested size of a claim.
func sizeOf(claim *unstructured.Unstructured) any {
	return raw.Nested(claim.Object, "spec", "resources", "requests", "storage")
}

// compareSizes compares two quantities. difference is negative if a is less than b. known is false if one of them is
// not a quantity.
func compareSizes(a, b any) (known bool, difference int) {
	first, err := resource.ParseQuantity(fmt.Sprint(a))
	second, err2 := resource.ParseQuantity(fmt.Sprint(b))
	if err != nil || err2 != nil {
		return false, 0
	}
	return true, first.Cmp(second)
}

// boundSize limits the requested size of the mutated claim to sizes that the provider's claim can have. An unbound
// claim cannot be resized. A claim cannot shrink, even if it was expanded on the provider.
func boundSize(w *evaluation.Worker, remote *unstructured.Unstructured) error {
	if remote == nil {
		return nil
	}
	desired, err := w.Doc.Root().At(sizePath)
	if err != nil {
		// The result of the chain is not a claim. Desired returns an error for it.
		return nil
	}
	asked, have := desired.Value(), sizeOf(remote)
	known, difference := compareSizes(asked, have)
	if !known || difference == 0 {
		return nil
	}
	if _, fits := compareSizes(asked, raw.Nested(remote.Object, "status", "capacity", "storage")); isBound(remote) && (difference > 0 || fits > 0) {
		return nil
	}
	return w.Doc.Root().SetString(sizePath, fmt.Sprint(have))
}
