// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/namespaces"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// ofClaim returns our volumes for all present and earlier claims with the given key.
func (v *volumes) ofClaim(key queue.Key) []*unstructured.Unstructured {
	found := v.informer.By(claimIndex, key.String())
	current := found[:0]
	for _, volume := range found {
		if volume = v.getVolume(volume.GetName()); volume != nil {
			current = append(current, volume)
		}
	}
	return current
}

// volumeBehind returns the name of the volume whose data our claim on the provider holds. The annotation contains the
// name. If Liqo created the claim, there is no annotation, and the volume must be the only candidate. volumeBehind
// returns "" if the volume is unknown.
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

// ownClaim reports whether our claim on the provider belongs to the present claim of this cluster, and not to an
// earlier claim with the same name.
func (h *handler) ownClaim(v *claimView) bool {
	if v.local == nil || v.elsewhere {
		return false
	}
	behind := h.volumeBehind(v)
	return behind == "" || behind == ownVolume(v.local)
}

// endClaim deletes our claim on the provider if the claim in this cluster no longer exists or is a different one. It
// does not delete the claim if its data must be kept.
func (h *handler) endClaim(ctx context.Context, w *evaluation.Worker, v *claimView) error {
	behind := h.volumeBehind(v)
	if volume := h.volumes.getVolume(behind); volume != nil && !isReleased(volume) {
		// The data must be kept: the volume is in use, maybe by a claim with another name, or will be released soon.
		return nil
	}
	if !h.mayEnd(v, behind) {
		return h.tellRetained(v, behind)
	}
	if err := h.Copies.Remove(ctx, w, v.scope.Namespace, v.remote); err != nil {
		return err
	}
	h.volumes.gone.Delete(v.key)
	return nil
}

// mayEnd reports whether the data of our claim on the provider may be deleted.
func (h *handler) mayEnd(v *claimView, behind string) bool {
	if volume := h.volumes.getVolume(behind); volume != nil {
		return mayGo(volume)
	}
	gone, known := h.volumes.gone.Load(v.key)
	return known && gone == behind || boundVolume(v.remote) == "" // the claim has no data yet
}

// tellRetained returns an error if a retained claim on the provider has the name of the claim. The error describes the
// retained claim.
func (h *handler) tellRetained(v *claimView, behind string) error {
	if v.local == nil || v.elsewhere || boundVolume(v.local) != "" || !h.isVirtual(v.local) {
		return nil
	}
	if _, here := h.selectedHere(v.local); !here {
		return nil
	}
	return &claimError{reason: wire.ProvisioningFailedReason, cause: &keptError{fmt.Sprintf(
		"PersistentVolumeClaim %s/%s on the provider keeps the data of an earlier claim of this name, whose volume was %s", v.scope.Remote, v.key.Name, behind)},
		remedy: "to use the data in this claim, recreate it with spec.volumeName " + behind + " once that volume's spec.claimRef.uid is removed; to discard it, set that volume's" +
			" persistentVolumeReclaimPolicy to Delete, or delete the claim on the provider"}
}

// dropReleased deletes volumes that were released under the policy Delete when their claims on the provider no longer
// exist. We are the provisioner of these volumes, so no other component deletes them.
func (h *handler) dropReleased(ctx context.Context, w *evaluation.Worker, v *claimView) error {
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

// NotOffloaded implements engine.Handler. It deletes released volumes in a namespace that is no longer offloaded. The
// provider deletes the remote namespace with all of its contents.
func (h *handler) NotOffloaded(ctx context.Context, w *evaluation.Worker, key queue.Key) error {
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
