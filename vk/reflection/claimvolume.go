// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

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
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// claimIndex finds volumes by the claim that they are for.
const claimIndex = "claim"

// volumes are the PersistentVolumes of this cluster that stand for claims of the provider, known by their labels, and
// the virtual storage class.
type volumes struct {
	informer, classes cache.SharedIndexInformer
	heard             []cache.DoneChecker
	writes            *mutationcache.Cache
	// gone remembers volumes that were deleted by others when they might, until their claims (Key, to a name) are looked at.
	gone sync.Map
}

// watchVolumes prepares what only claims need.
func (r *reflector) watchVolumes() error {
	known := &volumes{writes: mutationcache.New(r.m.options.Clock)}
	r.volumes = known
	var err error
	ours := informer.Selection{Labels: labels.Set(r.owned).String()}
	if known.informer, err = informer.New(r.m.local, volumesResource, ours, r.m.options.ResyncPeriod, nil, cache.Indexers{claimIndex: indexByClaim}); err != nil {
		return err
	}
	virtual := informer.Selection{Fields: fields.OneTermEqualSelector("metadata.name", r.m.options.Storage.Class).String()}
	if known.classes, err = informer.New(r.m.local, storageClassesResource, virtual, r.m.options.ResyncPeriod, nil, nil); err != nil {
		return err
	}
	for source, f := range map[cache.SharedIndexInformer]informer.EventFunc{
		known.informer: r.volumeChanged,
		known.classes:  func(_, _ *unstructured.Unstructured, _ bool) { r.enqueueAll() },
	} {
		heard, err := informer.OnEvent(source, f)
		if err != nil {
			return err
		}
		known.heard = append(known.heard, heard.HasSyncedChecker())
	}
	return nil
}

// volumeChanged looks at the claim of a volume.
func (r *reflector) volumeChanged(before, volume *unstructured.Unstructured, deleted bool) {
	claim := claimOf(volume)
	if deleted && r.m.leading.Load() && mayGo(volume) {
		r.volumes.gone.Store(claim, volume.GetName())
	}
	if !r.volumes.writes.Seen(raw.Key(volume), before, volume, deleted) {
		r.queue.Add(claim)
	}
}

// enqueueVolumes looks at the claims of volumes, be they there or not.
func (r *reflector) enqueueVolumes(which func(namespace string) bool) {
	if r.volumes == nil {
		return
	}
	for _, object := range r.volumes.informer.GetStore().List() {
		if volume, ok := object.(*unstructured.Unstructured); ok && which(claimOf(volume).Namespace) {
			r.queue.Add(claimOf(volume))
		}
	}
}

// enqueueVolumesNotOffloaded looks at those whose claims are, or were, in namespaces that are not extended.
func (m *Manager) enqueueVolumesNotOffloaded() {
	if claims := m.reflector(ClaimKind); claims != nil {
		claims.enqueueVolumes(func(namespace string) bool { return m.extension(namespace) == nil })
	}
}

func indexByClaim(object any) ([]string, error) {
	if volume, ok := object.(*unstructured.Unstructured); ok {
		return []string{claimOf(volume).String()}, nil
	}
	return nil, nil
}

// claimOf names the claim that a volume is for.
func claimOf(volume *unstructured.Unstructured) Key {
	return Key{Namespace: raw.Text(volume, "spec", "claimRef", "namespace"), Name: raw.Text(volume, "spec", "claimRef", "name")}
}

// isFor reports whether a volume is for this very claim.
func isFor(volume, claim *unstructured.Unstructured) bool {
	return volume != nil && claimOf(volume) == raw.Key(claim) && raw.Text(volume, "spec", "claimRef", "uid") == string(claim.GetUID())
}

func policyOf(volume *unstructured.Unstructured) corev1.PersistentVolumeReclaimPolicy {
	return corev1.PersistentVolumeReclaimPolicy(raw.Text(volume, "spec", "persistentVolumeReclaimPolicy"))
}

// isReleased tells that Kubernetes has found the claim of a volume to be gone.
func isReleased(volume *unstructured.Unstructured) bool {
	phase := corev1.PersistentVolumePhase(raw.Text(volume, "status", "phase"))
	return phase == corev1.VolumeReleased || phase == corev1.VolumeFailed
}

// mayGo tells a volume that is to go with its data.
func mayGo(volume *unstructured.Unstructured) bool {
	return isReleased(volume) && policyOf(volume) == corev1.PersistentVolumeReclaimDelete
}

// get returns a volume of ours, at least as new as our last write, or nil.
func (v *volumes) get(name string) *unstructured.Unstructured {
	object, _, _ := v.informer.GetStore().GetByKey(name)
	known, _ := object.(*unstructured.Unstructured)
	known, going := v.writes.View(Key{Name: name}, known)
	if going {
		return nil
	}
	return known
}

// class returns the virtual storage class, or nil.
func (v *volumes) class(name string) *unstructured.Unstructured {
	object, _, _ := v.classes.GetStore().GetByKey(name)
	class, _ := object.(*unstructured.Unstructured)
	return class
}

// findVolume looks for the volume of a claim. One that Liqo made, or that has lost its labels, is marked as ours.
func (r *reflector) findVolume(ctx context.Context, w *worker, v *claimView) error {
	if v.local == nil {
		return nil
	}
	if known := r.volumes.get(ownVolume(v.local)); known != nil {
		if isFor(known, v.local) {
			v.volume = known
		}
		return nil
	}
	if v.remote == nil || boundVolume(v.local) == "" || !r.isVirtual(v.local) {
		return nil
	}
	found, err := r.adoptVolume(ctx, w, v, boundVolume(v.local))
	v.volume, v.elsewhere = found, err == nil && found == nil
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// adoptVolume reads a volume and marks it as ours; nil when it stands for something else than our claim.
func (r *reflector) adoptVolume(ctx context.Context, w *worker, v *claimView, name string) (*unstructured.Unstructured, error) {
	var found *unstructured.Unstructured
	err := r.m.callLocal(ctx, func(ctx context.Context) (err error) {
		found, err = r.persistentVolumes().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("getting persistentvolume %s, %w", name, err)
	}
	_, _ = informer.DropManagedFields(found)
	if !isFor(found, v.local) || !r.isOurs(found) {
		return nil, nil
	}
	if r.managed(found) {
		return found, nil // the watch is late
	}
	return r.patchVolume(ctx, w, v.key, found, addEntries(nil, "/metadata/labels", raw.Labels(found.Object), r.m.options.ownership(r.kind)))
}

// isOurs tells a volume that stands for a claim of our provider.
func (r *reflector) isOurs(volume *unstructured.Unstructured) bool {
	if raw.Annotations(volume.Object)[wire.ProvisionedByAnnotation] != wire.StorageProvisioner {
		return false
	}
	return raw.Equal(map[string]any{"": raw.Nested(volume.Object, "spec", "nodeAffinity")}, map[string]any{"": r.affinity()})
}

func (r *reflector) persistentVolumes() dynamic.ResourceInterface {
	return r.m.local.Resource(volumesResource)
}

// volumeWriting announces a write; what it returns has the claim looked at again when somebody else changed the volume meanwhile.
func (r *reflector) volumeWriting(name string, claim Key) (done func()) {
	key := Key{Name: name}
	r.volumes.writes.Begin(key)
	return func() {
		if r.volumes.writes.End(key) {
			r.queue.Add(claim)
		}
	}
}

// patchVolume patches a volume, provided that it is as it is known.
func (r *reflector) patchVolume(ctx context.Context, w *worker, claim Key, volume *unstructured.Unstructured, patch jsonpatch.Patch) (*unstructured.Unstructured, error) {
	key := Key{Name: volume.GetName()}
	defer r.volumeWriting(key.Name, claim)()
	patch.Test("/metadata/uid", string(volume.GetUID()))
	stored, err := r.m.patch(ctx, volumesResource, key, patch)
	if err != nil {
		return nil, err
	}
	r.counted("patch", "local")
	r.volumes.writes.Wrote(key, volume, stored)
	w.result = "written"
	return stored, nil
}

// deleteVolume deletes a volume as it is known: not one that is being bound again.
func (r *reflector) deleteVolume(ctx context.Context, w *worker, volume *unstructured.Unstructured) error {
	if volume.GetDeletionTimestamp() != nil {
		return nil
	}
	uid, version := volume.GetUID(), volume.GetResourceVersion()
	err := r.m.callLocal(ctx, func(ctx context.Context) error {
		return r.persistentVolumes().Delete(ctx, volume.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting persistentvolume %s, %w", volume.GetName(), err)
	}
	if err == nil {
		r.counted("delete", "local")
	}
	r.volumes.writes.Deleted(Key{Name: volume.GetName()}, volume)
	w.result = "deleted"
	return nil
}
