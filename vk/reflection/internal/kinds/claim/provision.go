// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/vk/reflection/internal/clients"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// placeholderPath is the path in volumes that represent other volumes. Liqo uses the same path, so that each
// implementation recognizes the volumes of the other. No node has this folder, so an attempt to mount it fails.
const placeholderPath = "/tmp/liqo-placeholder"

// provisionClaim creates the claim on the provider, and the volume that represents it, if a node of this provider was
// selected for the claim.
func (h *handler) provisionClaim(ctx context.Context, w *evaluation.Worker, v *claimView) error {
	node, here := h.selectedHere(v.local)
	class := h.volumes.storageClass(h.Options().Storage.Class)
	switch {
	case node == "" && class != nil, here && h.Options().Storage.Enabled:
		if err := h.checkClass(class); err != nil || !here {
			return err
		}
	case here:
		return h.sendAway(ctx, w, v.local, node)
	default:
		return nil
	}
	if v.remote != nil && v.remote.GetDeletionTimestamp() != nil {
		// The provider's claim is being deleted. When the watch delivers its deletion, the claim is evaluated again.
		return nil
	}
	if !isEphemeral(v.local) {
		if err := h.reflectClaim(ctx, w, v); err != nil {
			return addRemedy(wire.ProvisioningFailedReason, err)
		}
	}
	return h.createVolume(ctx, w, v, class)
}

// checkClass returns an error if the binding mode of the storage class is not WaitForFirstConsumer. It must be, because
// the volume must be created in the cluster where the first pod runs.
func (h *handler) checkClass(class *unstructured.Unstructured) error {
	name := h.Options().Storage.Class
	switch {
	case class == nil:
		return &claimError{reason: wire.ProvisioningFailedReason, cause: &keptError{"storage class " + name + " no longer exists"},
			remedy: "recreate it with the provisioner " + wire.StorageProvisioner + " and volumeBindingMode WaitForFirstConsumer"}
	case raw.Text(class, "volumeBindingMode") != string(storagev1.VolumeBindingWaitForFirstConsumer):
		return &claimError{reason: wire.ProvisioningFailedReason, cause: &keptError{"volumeBindingMode of storage class " + name + " is " +
			cmp.Or(raw.Text(class, "volumeBindingMode"), "not set") + ": the first pod must determine the provider of a volume"},
			remedy: "recreate the class with WaitForFirstConsumer"}
	}
	return nil
}

// sendAway clears the selected node of a claim, because storage is disabled for this provider.
func (h *handler) sendAway(ctx context.Context, w *evaluation.Worker, claim *unstructured.Unstructured, node string) error {
	return h.clearNode(ctx, w, claim, node, fmt.Sprintf("storage is disabled on this provider; cleared selected node %s for rescheduling. Exclude nodes without storage"+
		" with a node affinity on label %s, or enable storage on the provider", node, wire.StorageAvailableLabel))
}

// clearNode clears the selected node of a claim, so that the scheduler selects another node.
func (h *handler) clearNode(ctx context.Context, w *evaluation.Worker, claim *unstructured.Unstructured, node, why string) error {
	var patch jsonpatch.Patch
	path := "/metadata/annotations" + jsonpatch.Pointer(wire.SelectedNodeAnnotation)
	patch.Test(path, node)
	patch.Remove(path)
	stored, err := h.Objects.PatchLocal(ctx, claim, patch)
	if err != nil || stored == nil {
		return err
	}
	h.Events.Warn(claim, wire.ReschedulingRequiredReason, fmt.Sprintf("cluster %s: %s", h.Options().RemoteClusterID, why))
	w.Result, w.Warned = "written", true
	return nil
}

// reflectClaim writes the result of the chain to the provider's claim.
func (h *handler) reflectClaim(ctx context.Context, w *evaluation.Worker, v *claimView) error {
	outcome, err := h.Mutator.Mutate(ctx, w, host.Outgoing, v.scope.Local, v.local.Object, outgoingInput(v.scope, v.local, v.remote))
	if err != nil {
		return err
	}
	h.Mutator.Warnings(w, v.local, outcome)
	if outcome.Skipped {
		return &keptError{fmt.Sprintf("plugin %s keeps the claim on this cluster: %s", outcome.Skipper, outcome.SkipReason)}
	}
	if err := boundSize(w, v.remote); err != nil {
		return err
	}
	x, err := h.Copies.Desired(w, v.scope.Namespace, v.local)
	if err != nil {
		return err
	}
	x.Extra = map[string]string{OriginVolumeAnnotation: ownVolume(v.local)}
	return h.Copies.Write(ctx, w, x, v.remote)
}

// createVolume creates the volume that represents the provider's claim. Kubernetes then binds it to the claim in this
// cluster.
func (h *handler) createVolume(ctx context.Context, w *evaluation.Worker, v *claimView, class *unstructured.Unstructured) error {
	volume := h.newVolume(v.local, class)
	name := volume.GetName()
	defer h.volumeWriting(name, v.key)()
	var stored *unstructured.Unstructured
	err := h.Clients.CallLocal(ctx, func(ctx context.Context) (err error) {
		stored, err = h.persistentVolumes().Create(ctx, volume, metav1.CreateOptions{FieldManager: wire.ReflectionFieldManager, FieldValidation: clients.FieldValidation})
		return err
	})
	if apierrors.IsAlreadyExists(err) {
		found, err := h.adoptVolume(ctx, w, v, name)
		if err == nil && found == nil {
			err = &keptError{fmt.Sprintf("PersistentVolume %s exists and does not belong to this claim on this provider: delete it", name)}
		}
		return addRemedy(wire.ProvisioningFailedReason, err)
	}
	if err != nil {
		return addRemedy(wire.ProvisioningFailedReason, fmt.Errorf("creating PersistentVolume %s, %w", name, err))
	}
	h.Writes.Count("create", "local")
	h.volumes.writes.Wrote(queue.Key{Name: name}, nil, stored)
	w.Wrote(evaluation.Back)
	return nil
}

// newVolume returns a volume that represents the provider's claim. Its capacity is the requested size until the
// provider reports the actual capacity.
func (h *handler) newVolume(claim, class *unstructured.Unstructured) *unstructured.Unstructured {
	spec := map[string]any{
		"storageClassName": h.Options().Storage.Class,
		"capacity":         map[string]any{"storage": sizeOf(claim)},
		"accessModes":      raw.Nested(claim.Object, "spec", "accessModes"),
		"volumeMode":       cmp.Or(raw.Text(claim, "spec", "volumeMode"), string(corev1.PersistentVolumeFilesystem)),
		"claimRef": map[string]any{"apiVersion": "v1", "kind": Name, "namespace": claim.GetNamespace(), "name": claim.GetName(),
			"uid": string(claim.GetUID())},
		"persistentVolumeReclaimPolicy": cmp.Or(raw.Text(class, "reclaimPolicy"), string(corev1.PersistentVolumeReclaimDelete)),
		"nodeAffinity":                  h.nodeAffinity(),
		"hostPath":                      map[string]any{"path": placeholderPath, "type": string(corev1.HostPathDirectory)},
	}
	volume := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": volumeKind, "spec": spec}}
	volume.SetName(ownVolume(claim))
	volume.SetLabels(h.Ownership())
	volume.SetAnnotations(map[string]string{wire.ProvisionedByAnnotation: wire.StorageProvisioner})
	return volume
}

// nodeAffinity returns the node affinity that restricts pods with the volume to the provider.
func (h *handler) nodeAffinity() map[string]any {
	here := map[string]any{"key": wire.RemoteClusterIDLabel, "operator": string(corev1.NodeSelectorOpIn), "values": []any{h.Options().RemoteClusterID}}
	return map[string]any{"required": map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{here}}}}}
}
