// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Waiters enqueues pods that were refused because of a claim. The handler of pods implements it.
type Waiters interface {
	// ClaimChanged enqueues the pods that were refused because of the claim.
	ClaimChanged(claim queue.Key)
}

// Extend implements engine.Handler. When a claim changes, it enqueues the pods that were refused because of the claim.
func (h *handler) Extend(s *engine.Scope) {
	s.OnObject(func(_, claim *unstructured.Unstructured, _ bool) {
		if pods, ok := engine.Peer[Waiters](h.Env); ok {
			pods.ClaimChanged(raw.Key(claim))
		}
	})
}

// KeptClass reports whether the volume of a claim exists, or will exist, only in this cluster. It also returns the
// storage class of the claim.
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

// isKept reports whether a claim stays in this cluster, because it has neither the virtual storage class nor a volume
// of the provider.
func (h *handler) isKept(claim *unstructured.Unstructured) bool {
	annotations := raw.Annotations(claim.Object)
	switch {
	case classOf(claim) == h.Options().Storage.Class,
		annotations[wire.StorageProvisionerAnnotation] == wire.StorageProvisioner, annotations[wire.BetaStorageProvisionerAnnotation] == wire.StorageProvisioner:
		return false
	case classOf(claim) == "" && boundVolume(claim) == "":
		// The claim has no storage class yet. It may still get the virtual class.
		return false
	}
	known := h.volumes.getVolume(ownVolume(claim))
	return known == nil || !isFor(known, claim)
}

// sendKept clears the selected node of an unbound claim of another class than the virtual one, as provisioners do after
// a rescheduling error. Otherwise the scheduler would wait for the volume forever, because the provisioner of the class
// never creates volumes on a virtual node. Claims with a volume are not changed.
func (h *handler) sendKept(ctx context.Context, w *evaluation.Worker, claim *unstructured.Unstructured) error {
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
