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

// OriginVolumeAnnotation, on claims of the provider, names the volume of this cluster whose data they hold. A claim of the
// same name that comes later is another one, and gets neither the data of the first nor its end.
const OriginVolumeAnnotation = "plugins.refract.io/origin-volume"

// claimView is everything a decision about a claim is made of.
type claimView struct {
	key    engine.Key
	scope  *engine.Scope
	local  *unstructured.Unstructured // nil when it is gone
	remote *unstructured.Unstructured // our claim on the provider
	volume *unstructured.Unstructured // of local, if it represents one on the provider
	// elsewhere: local is bound to a volume that is known to be another owner's
	elsewhere bool
}

// Reconcile implements engine.Handler: it follows the life of a claim. (Liqo: persistent storage.)
//
//   - Once a node of this provider is selected for a claim of the virtual class, a claim is made there, and a volume here
//     that represents it. Kubernetes binds the two here, and schedules the pods that use them only to this provider.
//   - Labels, annotations and size of a bound claim are reflected; capacity and conditions are reflected back.
//   - When the claim is deleted, its volume's reclaim policy decides about the data: Delete takes the provider's
//     claim and then the volume away; Retain keeps both, until the policy is changed to Delete. A claim of the same name
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

// runClaim takes care of a claim that is there.
func (h *handler) runClaim(ctx context.Context, w *engine.Worker, v *claimView) error {
	var err error
	switch {
	case v.local == nil || v.local.GetDeletionTimestamp() != nil || v.elsewhere:
		return nil
	case v.volume != nil:
		err = h.followClaim(ctx, w, v)
	case h.isVirtual(v.local) && boundVolume(v.local) == "":
		h.CheckAnnotations(w, v.local)
		err = h.provision(ctx, w, v)
	default:
		return h.sendKept(ctx, w, v.local)
	}
	if err == nil && !w.Warned {
		h.OK(v.local.GetUID())
	}
	return err
}

// isVirtual reports whether a claim is of the virtual storage class, so that its volume is for us to make.
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

// boundVolume names the volume of a claim that is bound, or is to be bound to that one.
func boundVolume(claim *unstructured.Unstructured) string {
	return raw.Text(claim, "spec", "volumeName")
}

// ownVolume names the volume of a claim, be it there or not.
func ownVolume(claim *unstructured.Unstructured) string {
	if bound := boundVolume(claim); bound != "" {
		return bound
	}
	return "pvc-" + string(claim.GetUID())
}

func isBound(claim *unstructured.Unstructured) bool {
	return raw.Text(claim, "status", "phase") == string(corev1.ClaimBound)
}

// isEphemeral reports whether it is the claim of a pod's generic ephemeral volume. The provider makes its own from the pod's template, and
// would not take ours for it.
func isEphemeral(claim *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1"
}
