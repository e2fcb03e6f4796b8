// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
)

// Inputs implements engine.Handler. The chains run only for claims that also exist on the provider.
func (h *handler) Inputs(s *engine.Scope, local *unstructured.Unstructured) (in engine.ChainInputs) {
	remote, going := s.PeekCopy(local.GetName())
	if remote == nil || going || isEphemeral(local) || !h.ownClaim(&claimView{key: s.Key(local.GetName()), scope: s, local: local, remote: remote}) {
		return in
	}
	in.Outgoing = outgoingInput(s, local, remote)
	if isBound(local) {
		in.Incoming = mutation.IncomingInput(s.Context(host.Incoming), local, remote)
	}
	return in
}

// outgoingInput returns the input of the outgoing chain. remote is the provider's claim, or nil if there is none.
func outgoingInput(s *engine.Scope, local, remote *unstructured.Unstructured) *mutation.Input {
	root := s.Context(host.Outgoing)
	if remote != nil {
		root = maps.Clone(root)
		root["remoteStorageClass"] = classOf(remote)
	}
	return &mutation.Input{Object: local.Object, Context: root}
}
