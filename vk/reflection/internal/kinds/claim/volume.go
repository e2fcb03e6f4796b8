// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/vk/reflection/internal/clients"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// claimIndex is the index of volumes by their claim.
const claimIndex = "claim"

// volumeKind is the kind of volumes in manifests and messages.
const volumeKind = "PersistentVolume"

// volumes contains this cluster's PersistentVolumes that represent claims of the provider, which are selected by their
// labels, and the virtual storage class.
type volumes struct {
	informer, classes *informer.Informer
	writes            *mutationcache.Cache
	// gone contains the names of volumes that other clients have deleted, and were allowed to delete, by claim (Key).
	// An entry is kept until its claim is reconciled.
	gone sync.Map
}

// watchVolumes starts the watches of volumes and storage classes. Only the reflection of claims needs them.
func (h *handler) watchVolumes() {
	h.volumes = &volumes{writes: mutationcache.New(h.Clock())}
	ours := informer.Selection{Labels: labels.Set(h.Ownership()).String()}
	h.volumes.informer = h.WatchLocal(volumesResource, informer.Options{Selection: ours, Indexers: cache.Indexers{claimIndex: indexByClaim}}, h.volumeChanged)
	virtual := informer.Selection{Fields: fields.OneTermEqualSelector("metadata.name", h.Options().Storage.Class).String()}
	h.volumes.classes = h.WatchLocal(storageClassesResource, informer.Options{Selection: virtual}, func(_, _ *unstructured.Unstructured, _ bool) { h.EnqueueAll() })
}

// Synced implements engine.Handler. It enqueues the claims to which the volumes of a namespace belong.
func (h *handler) Synced(s *engine.Scope, kind *engine.Kind) {
	if kind.Name == Name {
		h.enqueueVolumes(func(namespace string) bool { return namespace == s.Local })
	}
}

// volumeChanged enqueues the claim of a volume.
func (h *handler) volumeChanged(before, volume *unstructured.Unstructured, deleted bool) {
	claim := claimOf(volume)
	if deleted && h.IsLeading() && mayGo(volume) {
		h.volumes.gone.Store(claim, volume.GetName())
	}
	if !h.volumes.writes.Seen(raw.Key(volume), before, volume, deleted) {
		h.Queue.Add(claim)
	}
}

// enqueueVolumes enqueues the claims of volumes in the selected namespaces, whether or not the claims exist.
func (h *handler) enqueueVolumes(which func(namespace string) bool) {
	for _, volume := range h.volumes.informer.All() {
		if which(claimOf(volume).Namespace) {
			h.Queue.Add(claimOf(volume))
		}
	}
}

// NamespacesChanged enqueues the claims of all volumes whose claims are, or were, in namespaces that are not offloaded.
func (h *handler) NamespacesChanged() {
	h.enqueueVolumes(func(namespace string) bool { return !h.IsExtended(namespace) })
}

// StartedLeading implements engine.Handler. It enqueues the claims that a virtual kubelet reconciles only while it is
// the leader.
func (h *handler) StartedLeading() { h.NamespacesChanged() }

// indexByClaim is an index function of volumes by the claim in their spec.claimRef.
func indexByClaim(object any) ([]string, error) {
	if volume, ok := object.(*unstructured.Unstructured); ok {
		return []string{claimOf(volume).String()}, nil
	}
	return nil, nil
}

// claimOf returns the key of the claim of a volume.
func claimOf(volume *unstructured.Unstructured) queue.Key {
	return queue.Key{Namespace: raw.Text(volume, "spec", "claimRef", "namespace"), Name: raw.Text(volume, "spec", "claimRef", "name")}
}

// isFor reports whether a volume belongs to this claim, and not to another claim with the same name.
func isFor(volume, claim *unstructured.Unstructured) bool {
	return volume != nil && claimOf(volume) == raw.Key(claim) && raw.Text(volume, "spec", "claimRef", "uid") == string(claim.GetUID())
}

// policyOf returns the reclaim policy of a volume.
func policyOf(volume *unstructured.Unstructured) corev1.PersistentVolumeReclaimPolicy {
	return corev1.PersistentVolumeReclaimPolicy(raw.Text(volume, "spec", "persistentVolumeReclaimPolicy"))
}

// isReleased reports whether Kubernetes has released a volume because its claim is gone.
func isReleased(volume *unstructured.Unstructured) bool {
	phase := corev1.PersistentVolumePhase(raw.Text(volume, "status", "phase"))
	return phase == corev1.VolumeReleased || phase == corev1.VolumeFailed
}

// mayGo reports whether a volume must be deleted together with its data.
func mayGo(volume *unstructured.Unstructured) bool {
	return isReleased(volume) && policyOf(volume) == corev1.PersistentVolumeReclaimDelete
}

// getVolume returns one of our volumes. The result is at least as new as our last write of the volume. It is nil if the
// volume does not exist.
func (v *volumes) getVolume(name string) *unstructured.Unstructured {
	known, going := v.writes.View(queue.Key{Name: name}, func() *unstructured.Unstructured { return v.informer.Get("", name) })
	if going {
		return nil
	}
	return known
}

// storageClass returns the virtual storage class, or nil if it does not exist.
func (v *volumes) storageClass(name string) *unstructured.Unstructured {
	return v.classes.Get("", name)
}

// findVolume finds the volume of a claim. A volume that Liqo created, or that has lost its labels, gets our labels.
func (h *handler) findVolume(ctx context.Context, w *evaluation.Worker, v *claimView) error {
	if v.local == nil {
		return nil
	}
	if known := h.volumes.getVolume(ownVolume(v.local)); known != nil {
		if isFor(known, v.local) {
			v.volume = known
		}
		return nil
	}
	if v.remote == nil || boundVolume(v.local) == "" || !h.isVirtual(v.local) {
		return nil
	}
	found, err := h.adoptVolume(ctx, w, v, boundVolume(v.local))
	v.volume, v.elsewhere = found, err == nil && found == nil
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// adoptVolume reads a volume and adds our labels. It returns nil if the volume does not represent our claim.
func (h *handler) adoptVolume(ctx context.Context, w *evaluation.Worker, v *claimView, name string) (*unstructured.Unstructured, error) {
	var found *unstructured.Unstructured
	err := h.Clients.CallLocal(ctx, func(ctx context.Context) (err error) {
		found, err = h.persistentVolumes().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("getting PersistentVolume %s, %w", name, err)
	}
	if !isFor(found, v.local) || !h.isOurs(found) {
		return nil, nil
	}
	if h.Copies.Managed(found) {
		// The volume already has our labels. It is not cached yet, because the watch has not delivered it.
		return found, nil
	}
	return h.patchVolume(ctx, w, v.key, found, clients.AddEntries(nil, "/metadata/labels", raw.Labels(found.Object), h.Ownership()))
}

// isOurs reports whether a volume represents a claim on our provider.
func (h *handler) isOurs(volume *unstructured.Unstructured) bool {
	if raw.Annotations(volume.Object)[wire.ProvisionedByAnnotation] != wire.StorageProvisioner {
		return false
	}
	return raw.Equal(map[string]any{"": raw.Nested(volume.Object, "spec", "nodeAffinity")}, map[string]any{"": h.nodeAffinity()})
}

// persistentVolumes returns a client for the volumes of this cluster.
func (h *handler) persistentVolumes() dynamic.ResourceInterface {
	return h.Clients.Local.Resource(volumesResource)
}

// volumeWriting announces a write of a volume. The caller must call done after the write. If another client has changed
// the volume during the write, done enqueues the claim again.
func (h *handler) volumeWriting(name string, claim queue.Key) (done func()) {
	key := queue.Key{Name: name}
	h.volumes.writes.Begin(key)
	return func() {
		if h.volumes.writes.End(key) {
			h.Queue.Add(claim)
		}
	}
}

// patchVolume patches a volume. The patch fails if the volume has changed since it was read.
func (h *handler) patchVolume(ctx context.Context, w *evaluation.Worker, claim queue.Key, volume *unstructured.Unstructured, patch jsonpatch.Patch) (*unstructured.Unstructured, error) {
	key := queue.Key{Name: volume.GetName()}
	defer h.volumeWriting(key.Name, claim)()
	patch.Test("/metadata/uid", string(volume.GetUID()))
	stored, err := h.Clients.PatchLocal(ctx, volumesResource, volumeKind, key, patch)
	if err != nil {
		return nil, err
	}
	h.Writes.Count("patch", "local")
	h.volumes.writes.Wrote(key, volume, stored)
	w.Wrote(evaluation.Back)
	return stored, nil
}

// deleteVolume deletes a volume. The deletion fails if the volume has changed since it was read, so that a volume that
// is being bound again is not deleted.
func (h *handler) deleteVolume(ctx context.Context, w *evaluation.Worker, volume *unstructured.Unstructured) error {
	if volume.GetDeletionTimestamp() != nil {
		return nil
	}
	uid, version := volume.GetUID(), volume.GetResourceVersion()
	err := h.Clients.CallLocal(ctx, func(ctx context.Context) error {
		return h.persistentVolumes().Delete(ctx, volume.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting PersistentVolume %s, %w", volume.GetName(), err)
	}
	if err == nil {
		h.Writes.Count("delete", "local")
	}
	h.volumes.writes.Deleted(queue.Key{Name: volume.GetName()}, volume)
	w.Deleted(evaluation.Back)
	return nil
}
