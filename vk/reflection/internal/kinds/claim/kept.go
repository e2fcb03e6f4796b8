// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Waiters are the pods that were refused because of a claim; the kind Pod implements it.
type Waiters interface {
	// ClaimChanged enqueues the pods that were refused because of a claim.
	ClaimChanged(claim engine.Key)
}

// Extend has the pods that were refused because of a claim enqueued when it changes.
func (h *handler) Extend(s *engine.Scope) {
	s.OnObject(func(_, claim *unstructured.Unstructured, _ bool) {
		if pods, ok := engine.Peer[Waiters](h.Env); ok {
			pods.ClaimChanged(raw.Key(claim))
		}
	})
}

// KeptClass returns the storage class of a claim whose volume is, or will be, in this cluster alone, and reports whether it is such a claim.
func (h *handler) KeptClass(namespace, name string) (class string, kept bool) {
	s := h.Scope(namespace)
	if s == nil {
		return "", false
	}
	claim := s.Object(s.Key(name))
	if claim == nil || !h.isKept(claim) {
		return "", false
	}
	return classOf(claim), true
}

// isKept reports whether no virtual kubelet makes the volume of a claim, and none has: the claim has another class than the virtual one.
func (h *handler) isKept(claim *unstructured.Unstructured) bool {
	annotations := raw.Annotations(claim.Object)
	switch {
	case classOf(claim) == h.Options().Storage.Class,
		annotations[wire.StorageProvisionerAnnotation] == wire.StorageProvisioner, annotations[wire.BetaStorageProvisionerAnnotation] == wire.StorageProvisioner:
		return false
	case classOf(claim) == "" && boundVolume(claim) == "":
		return false // it has no class yet, and may get the virtual one
	}
	known := h.volumes.get(ownVolume(claim))
	return known == nil || !isFor(known, claim)
}

// sendKept clears the selected node of a claim that is not of the virtual class: its provisioner makes no volume on a virtual node, and the
// scheduler would wait for that for ever. It looks for another node, as after the rescheduling error of any other provisioner. A claim that is bound,
// or is to be bound to a certain volume, is left alone.
func (h *handler) sendKept(ctx context.Context, w *engine.Worker, claim *unstructured.Unstructured) error {
	node, here := h.selectedHere(claim)
	if !here || isBound(claim) || boundVolume(claim) != "" || !h.isKept(claim) {
		return nil
	}
	remedy := "keep its pods off virtual nodes with a node affinity (" + wire.TypeLabel + " NotIn " + wire.VirtualNodeType + ")"
	if h.Options().Storage.Enabled {
		remedy = "use storage class " + h.Options().Storage.Class + ", or " + remedy
	}
	return h.clearNode(ctx, w, claim, node, fmt.Sprintf("storage class %q has no volumes on virtual nodes; cleared selected node %s for rescheduling: %s", classOf(claim), node, remedy))
}
