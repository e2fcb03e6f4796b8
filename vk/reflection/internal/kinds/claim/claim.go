// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// OriginVolumeAnnotation, on claims of the provider, names the volume of this cluster whose data they hold. A later
// claim of the same name is a different claim: it gets neither the data of the first one, nor does its deletion affect
// it.
const OriginVolumeAnnotation = "plugins.refract.io/origin-volume"

// claimView has all inputs of a decision about a claim.
type claimView struct {
	key    engine.Key
	scope  *engine.Scope
	local  *unstructured.Unstructured // nil if the claim is gone
	remote *unstructured.Unstructured // our claim on the provider
	volume *unstructured.Unstructured // volume of local, if it represents a volume of the provider
	// elsewhere means that local is bound to a volume of another owner.
	elsewhere bool
}

// Reconcile implements engine.Handler. It follows the life of a claim. (Liqo: persistent storage.)
//
//   - Once a node of this provider is selected for a claim of the virtual class, a claim is created there, and a
//     volume here that represents it. Kubernetes binds the two here, and schedules the pods that use them only to this
//     provider.
//   - Labels, annotations and size of a bound claim are reflected; capacity and conditions are reflected back.
//   - When the claim is deleted, its volume's reclaim policy decides about the data: Delete removes the provider's
//     claim and then the volume; Retain keeps both, until the policy is changed to Delete. A claim of the same name
//     waits for deletion with Delete, and reports a retained claim.
//
// The provider's claim has the only copy of the data. It is not deleted unless the volume that represents it has been
// released under the policy Delete, or it has never had a volume.
func (h *handler) Reconcile(ctx context.Context, w *engine.Worker, s *engine.Scope, key engine.Key) error {
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
	if err := h.dropReleased(ctx, w, v); err != nil {
		return err
	}
	if v.remote != nil && !h.ownClaim(v) {
		return h.endClaim(ctx, w, v)
	}
	h.volumes.gone.Delete(key)
	return h.runClaim(ctx, w, v)
}

// runClaim reconciles a claim that exists.
func (h *handler) runClaim(ctx context.Context, w *engine.Worker, v *claimView) error {
	var err error
	switch {
	case v.local == nil || v.local.GetDeletionTimestamp() != nil || v.elsewhere:
		return nil
	case v.volume != nil:
		err = h.followClaim(ctx, w, v)
	case h.isVirtual(v.local) && boundVolume(v.local) == "":
		h.CheckAnnotations(w, v.local)
		err = h.provisionClaim(ctx, w, v)
	default:
		return h.sendKept(ctx, w, v.local)
	}
	if err == nil && !w.Warned {
		h.OK(v.local.GetUID())
	}
	return err
}

// isVirtual reports whether a claim has the virtual storage class, so that we provision its volume.
func (h *handler) isVirtual(claim *unstructured.Unstructured) bool {
	annotations := raw.Annotations(claim.Object)
	return classOf(claim) == h.Options().Storage.Class &&
		(annotations[wire.StorageProvisionerAnnotation] == wire.StorageProvisioner || annotations[wire.BetaStorageProvisionerAnnotation] == wire.StorageProvisioner)
}

// selectedHere returns the node that was selected for a claim, and whether it is a virtual node of our provider.
func (h *handler) selectedHere(claim *unstructured.Unstructured) (node string, here bool) {
	node, _ = raw.Annotations(claim.Object)[wire.SelectedNodeAnnotation].(string)
	return node, node != "" && h.ClusterOf(node) == h.Options().RemoteClusterID
}

func classOf(claim *unstructured.Unstructured) string {
	if class, ok := raw.Annotations(claim.Object)[wire.BetaStorageClassAnnotation].(string); ok {
		return class
	}
	return raw.Text(claim, "spec", "storageClassName")
}

// boundVolume returns the name of the volume to which a claim is bound, or requests to be bound.
func boundVolume(claim *unstructured.Unstructured) string {
	return raw.Text(claim, "spec", "volumeName")
}

// ownVolume returns the name of the volume of a claim, whether or not the volume exists.
func ownVolume(claim *unstructured.Unstructured) string {
	if bound := boundVolume(claim); bound != "" {
		return bound
	}
	return "pvc-" + string(claim.GetUID())
}

func isBound(claim *unstructured.Unstructured) bool {
	return raw.Text(claim, "status", "phase") == string(corev1.ClaimBound)
}

// isEphemeral reports whether a claim belongs to a generic ephemeral volume of a pod. The provider creates its own
// claim from the pod's template, and would not use ours.
func isEphemeral(claim *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1"
}
