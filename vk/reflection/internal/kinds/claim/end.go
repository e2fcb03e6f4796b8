// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/namespaces"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// ofClaim returns our volumes for claims of that name.
func (v *volumes) ofClaim(key engine.Key) []*unstructured.Unstructured {
	found := v.informer.By(claimIndex, key.String())
	current := found[:0]
	for _, volume := range found {
		if volume = v.get(volume.GetName()); volume != nil {
			current = append(current, volume)
		}
	}
	return current
}

// volumeBehind names the volume whose data our claim on the provider holds: as is noted there, or, when Liqo made it, the
// only one that it can be; "" when that is not known.
func (h *handler) volumeBehind(v *claimView) string {
	if noted, _ := raw.Annotations(v.remote.Object)[OriginVolumeAnnotation].(string); noted != "" {
		return noted
	}
	if v.volume != nil {
		return v.volume.GetName()
	}
	if known := h.volumes.ofClaim(v.key); len(known) == 1 {
		return known[0].GetName()
	}
	return ""
}

// ownClaim reports whether our claim on the provider is that of the claim here, and not of an earlier one of its name.
func (h *handler) ownClaim(v *claimView) bool {
	if v.local == nil || v.elsewhere {
		return false
	}
	behind := h.volumeBehind(v)
	return behind == "" || behind == ownVolume(v.local)
}

// endClaim deletes our claim on the provider when the one here is gone, or another, and no data is to be kept.
func (h *handler) endClaim(ctx context.Context, w *engine.Worker, v *claimView) error {
	behind := h.volumeBehind(v)
	if volume := h.volumes.get(behind); volume != nil && !isReleased(volume) {
		return nil // it is in use, be it under another name, or about to be released
	}
	if !h.mayEnd(v, behind) {
		return h.tellRetained(v, behind)
	}
	if err := h.Remove(ctx, w, v.scope, v.remote); err != nil {
		return err
	}
	h.volumes.gone.Delete(v.key)
	return nil
}

// mayEnd reports whether what our claim on the provider holds may be deleted.
func (h *handler) mayEnd(v *claimView, behind string) bool {
	if volume := h.volumes.get(behind); volume != nil {
		return mayGo(volume)
	}
	gone, known := h.volumes.gone.Load(v.key)
	return known && gone == behind || boundVolume(v.remote) == "" // there is no data yet
}

// tellRetained warns a claim that needs the name on the provider, and names the claim that has it.
func (h *handler) tellRetained(v *claimView, behind string) error {
	if v.local == nil || v.elsewhere || boundVolume(v.local) != "" || !h.isVirtual(v.local) {
		return nil
	}
	if _, here := h.selectedHere(v.local); !here {
		return nil
	}
	return &claimError{reason: wire.ProvisioningFailedReason, cause: &keptError{fmt.Sprintf(
		"PersistentVolumeClaim %s/%s on the provider keeps the data of an earlier claim of this name, whose volume was %s", v.scope.RemoteNamespace(), v.key.Name, behind)},
		remedy: "to use the data in this claim, recreate it with spec.volumeName " + behind + " once that volume's spec.claimRef.uid is removed; to discard it, set that volume's" +
			" persistentVolumeReclaimPolicy to Delete, or delete the claim on the provider"}
}

// dropReleased deletes volumes that were released under the policy Delete, once nothing is left of them on the provider.
// No other component does: we are their provisioner.
func (h *handler) dropReleased(ctx context.Context, w *engine.Worker, v *claimView) error {
	for _, volume := range h.volumes.ofClaim(v.key) {
		if !mayGo(volume) || v.remote != nil && h.volumeBehind(v) == volume.GetName() {
			continue
		}
		if err := h.deleteVolume(ctx, w, volume); err != nil {
			return err
		}
	}
	return nil
}

// NotOffloaded implements engine.Handler: it deletes such volumes in a namespace that is not offloaded any more. Its remote namespace has gone with all that was in it, or will:
// that is the provider's business.
func (h *handler) NotOffloaded(ctx context.Context, w *engine.Worker, key engine.Key) error {
	if state, known := h.NamespaceState(key.Namespace); !known || state != namespaces.NotOffloaded {
		return nil
	}
	h.volumes.gone.Delete(key)
	for _, volume := range h.volumes.ofClaim(key) {
		if !mayGo(volume) {
			continue
		}
		if err := h.deleteVolume(ctx, w, volume); err != nil {
			return err
		}
	}
	return nil
}
