// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// OriginVolumeAnnotation is an annotation of claims on the provider. It contains the name of this cluster's volume
// whose data the claim holds. A later claim with the same name is a different claim: it must not get the data of the
// earlier claim, and its deletion must not affect this data.
const OriginVolumeAnnotation = "plugins.refract.io/origin-volume"

// claimView contains the objects on which the reconciliation of a claim depends.
type claimView struct {
	key    queue.Key
	scope  *engine.Scope
	local  *unstructured.Unstructured // claim in this cluster, or nil if it no longer exists
	remote *unstructured.Unstructured // our claim on the provider, or nil if it does not exist
	volume *unstructured.Unstructured // volume of local, if it represents a volume of the provider
	// elsewhere means that local is bound to a volume that belongs to someone else.
	elsewhere bool
}

// Reconcile implements engine.Handler. It handles all phases in the life of a claim. This corresponds to Liqo's
// persistent storage.
//
//   - Once a node of this provider is selected for a claim of the virtual class, a claim is created on the provider,
//     and a volume that represents it in this cluster. Kubernetes binds the volume to the claim of this cluster, and
//     schedules the pods that use the claim only to this provider.
//   - Labels, annotations and size of a bound claim are reflected; capacity and conditions are reflected back.
//   - When the claim is deleted, its volume's reclaim policy decides about the data: Delete removes the provider's
//     claim and then the volume; Retain keeps both, until the policy is changed to Delete. A new claim of the same
//     name waits until the data were deleted or, if the policy is Retain, reports the retained claim.
//
// The provider's claim has the only copy of the data. It is deleted only if the volume that represents it was released
// under the policy Delete, or if it has never had a volume. If the deletion of an earlier claim's volume fails, this
// does not affect the present claim.
func (h *handler) Reconcile(ctx context.Context, w *evaluation.Worker, s *engine.Scope, key queue.Key) error {
	v := &claimView{key: key, scope: s, local: s.Object(key)}
	var going bool
	if v.remote, going = s.Copy(key.Name); going {
		return nil
	}
	if v.local == nil {
		s.Forget(key)
	}
	if err := h.findVolume(ctx, w, v); err != nil {
		return err
	}
	dropped := h.dropReleased(ctx, w, v)
	var err error
	if v.remote != nil && !h.ownClaim(v) {
		err = h.endClaim(ctx, w, v)
	} else {
		h.volumes.gone.Delete(key)
		err = h.runClaim(ctx, w, v)
	}
	failed := evaluation.Directions(err)
	out, back := failed[evaluation.Out], failed[evaluation.Back]
	if out == nil {
		return evaluation.Directed(dropped, back)
	}
	return evaluation.Directed(out, cmp.Or(back, dropped))
}

// runClaim reconciles an existing claim.
func (h *handler) runClaim(ctx context.Context, w *evaluation.Worker, v *claimView) error {
	var err error
	switch {
	case v.local == nil || v.local.GetDeletionTimestamp() != nil || v.elsewhere:
		return nil
	case v.volume != nil:
		err = h.followClaim(ctx, w, v)
	case h.isVirtual(v.local) && boundVolume(v.local) == "":
		h.Mutator.CheckAnnotations(w, v.local)
		err = h.provisionClaim(ctx, w, v)
	default:
		return h.sendKept(ctx, w, v.local)
	}
	if err == nil && !w.Warned {
		h.Events.OK(v.local.GetUID())
	}
	return err
}

// isVirtual reports whether a claim has the virtual storage class, so that the virtual kubelet provisions its volume.
func (h *handler) isVirtual(claim *unstructured.Unstructured) bool {
	annotations := raw.Annotations(claim.Object)
	return classOf(claim) == h.Options().Storage.Class &&
		(annotations[wire.StorageProvisionerAnnotation] == wire.StorageProvisioner || annotations[wire.BetaStorageProvisionerAnnotation] == wire.StorageProvisioner)
}

// selectedHere returns the node that was selected for a claim. here reports whether it is a virtual node of our
// provider.
func (h *handler) selectedHere(claim *unstructured.Unstructured) (node string, here bool) {
	node, _ = raw.Annotations(claim.Object)[wire.SelectedNodeAnnotation].(string)
	return node, node != "" && h.Settings.ClusterOf(node) == h.Options().RemoteClusterID
}

// classOf returns the storage class of a claim. The beta annotation takes precedence over the field, as in Kubernetes.
func classOf(claim *unstructured.Unstructured) string {
	if class, ok := raw.Annotations(claim.Object)[wire.BetaStorageClassAnnotation].(string); ok {
		return class
	}
	return raw.Text(claim, "spec", "storageClassName")
}

// boundVolume returns the name of the volume that a claim is bound to, or requests to be bound.
func boundVolume(claim *unstructured.Unstructured) string {
	return raw.Text(claim, "spec", "volumeName")
}

// ownVolume returns the name of the volume for a claim, whether or not the volume exists.
func ownVolume(claim *unstructured.Unstructured) string {
	if bound := boundVolume(claim); bound != "" {
		return bound
	}
	return "pvc-" + string(claim.GetUID())
}

// isBound reports whether Kubernetes has bound a claim to its volume.
func isBound(claim *unstructured.Unstructured) bool {
	return raw.Text(claim, "status", "phase") == string(corev1.ClaimBound)
}

// isEphemeral reports whether a claim belongs to a generic ephemeral volume of a pod. The provider creates a claim of
// its own from the pod's template, and would not use a reflected claim.
func isEphemeral(claim *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1"
}
