// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// sizePath is what may change in the spec of a claim that is bound.
const sizePath = "spec.resources.requests.storage"

// followClaim keeps a claim that has its volume, and the provider's, the same.
func (h *handler) followClaim(ctx context.Context, w *engine.Worker, v *claimView) error {
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
	kept := refused(reason, h.reflectClaim(ctx, w, v))
	return engine.Directed(kept, h.showClaim(ctx, w, v))
}

// lostClaim reports whether the provider's claim is gone. Making it again would show an empty volume where there was data.
func (h *handler) lostClaim(ctx context.Context, v *claimView) error {
	if err := h.MustBeFree(ctx, v.scope, v.key); err != nil {
		return err
	}
	return &claimError{reason: wire.ClaimLostReason, cause: &lostError{fmt.Sprintf(
		"PersistentVolumeClaim %s/%s was deleted on the provider; the data of volume %s may be lost", v.scope.RemoteNamespace(), v.key.Name, v.volume.GetName())},
		remedy: "restore it there with its labels, or delete and recreate this claim"}
}

// showClaim copies capacity and conditions back: to the volume, too, which is what Kubernetes shows.
func (h *handler) showClaim(ctx context.Context, w *engine.Worker, v *claimView) error {
	if !isBound(v.local) {
		return nil
	}
	next, err := h.IncomingStatus(ctx, w, v.scope, v.local, v.remote)
	if err != nil || next == nil {
		return err
	}
	if err := h.resizeVolume(ctx, w, v, raw.Nested(next, "capacity", "storage")); err != nil {
		return err
	}
	if present, _ := v.local.Object["status"].(map[string]any); raw.Equal(next, present) {
		return nil
	}
	return h.PutStatus(ctx, w, v.local, next)
}

func (h *handler) resizeVolume(ctx context.Context, w *engine.Worker, v *claimView, capacity any) error {
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

// sizeOf is what a claim asks for.
func sizeOf(claim *unstructured.Unstructured) any {
	return raw.Nested(claim.Object, "spec", "resources", "requests", "storage")
}

// compareSizes compares two quantities; known is false when one of them is none.
func compareSizes(a, b any) (known bool, difference int) {
	first, err := resource.ParseQuantity(fmt.Sprint(a))
	second, err2 := resource.ParseQuantity(fmt.Sprint(b))
	if err != nil || err2 != nil {
		return false, 0
	}
	return true, first.Cmp(second)
}

// boundSize keeps the mutated claim from asking for a size that the provider's claim cannot have: another one while it is not
// bound, and less than it has got, which happens when it was resized on the provider.
func boundSize(w *engine.Worker, remote *unstructured.Unstructured) error {
	if remote == nil {
		return nil
	}
	desired, err := w.Doc.Root().At(sizePath)
	if err != nil {
		return nil // it is no claim any more, and Desired returns the error
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
