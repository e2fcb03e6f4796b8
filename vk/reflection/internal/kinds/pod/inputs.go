// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/internal/podend"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
	"github.com/refract-project/refract/vk/reflection/internal/pods"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Inputs implements engine.Handler. Inputs reads the restarts of the pod from its annotation and not from podState,
// because only Reconcile may use the podState.
func (h *Handler) Inputs(s *engine.Scope, local *unstructured.Unstructured) (in engine.ChainInputs) {
	derived, _ := s.State.(*informer.Informer)
	v := &podView{key: raw.Key(local), scope: s, local: local, status: raw.Status(local)}
	v.remote = derived.Peek(queue.Key{Namespace: s.Remote, Name: v.key.Name})
	v.shadow, _ = s.PeekCopy(v.key.Name)
	if podend.Finished(pods.Phase(v.status)) || copies.StandsForAnother(v.shadow, local) {
		return in
	}
	root, _ := h.context(v)
	in.Outgoing = &mutation.Input{Object: local.Object, Context: root}
	if v.shadow != nil && v.remote != nil && !copies.StandsForAnother(v.remote, local) && interruption(v) == "" {
		in.Incoming = &mutation.Input{Object: v.remote.Object, Context: h.incomingContext(v, &pods.Restarts{})}
	}
	return in
}
