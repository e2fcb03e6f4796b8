// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/podend"
	"github.com/refract-project/refract/vk/pods"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Shadows are the ShadowPods; the kind Pod has them.
type Shadows interface {
	// Shadow returns that of a pod as it is cached; false when pods are not reflected in the namespace.
	Shadow(namespace, name string) (shadow *unstructured.Unstructured, reflected bool)
	// FollowShadows makes the scope wait for them to be known, and calls f when one is gone.
	FollowShadows(s *engine.Scope, f func(name string))
}

// mounting says of a pod whether what is offloaded of it mounts its tokens.
type mounting struct {
	uid    types.UID
	mounts bool
}

// ObjectMatters implements engine.Handler: most changes of pods are of their status, and concern no token.
func (h *Handler) ObjectMatters(before, pod *unstructured.Unstructured) bool {
	return before == nil || before.GetResourceVersion() == pod.GetResourceVersion() || before.GetUID() != pod.GetUID() ||
		raw.Annotations(before.Object)[wire.APIServerSupportAnnotation] != raw.Annotations(pod.Object)[wire.APIServerSupportAnnotation] ||
		podend.Finished(pods.Phase(raw.Status(before))) != podend.Finished(pods.Phase(raw.Status(pod)))
}

// Extend makes tokens follow the end of ShadowPods: see mountsTokens.
func (h *Handler) Extend(s *engine.Scope) {
	if known, ok := engine.Peer[Shadows](h.Env); ok {
		known.FollowShadows(s, func(name string) { s.Enqueue(s.Key(name)) })
	}
}

// mountsTokens reports whether the ShadowPod mounts the tokens, or will when it is made. Pods that were offloaded before
// there were tokens do not, nor does one that a plugin skips: no credential of theirs is to be on the provider.
// It is not known while the pod's chain has not run; then what there is stays as it is.
func (h *Handler) mountsTokens(key engine.Key, local *unstructured.Unstructured) (mounts, known bool) {
	all, ok := engine.Peer[Shadows](h.Env)
	if !ok {
		return false, false
	}
	shadow, reflected := all.Shadow(key.Namespace, key.Name)
	if !reflected {
		return false, false
	}
	if shadow != nil && !engine.StandsForAnother(shadow, local) {
		for _, secret := range access.Secrets(raw.Map(raw.Nested(shadow.Object, "spec", "pod"))) {
			if secret == h.RemoteName(key.Name) {
				return true, true
			}
		}
		return false, true
	}
	said, ok := h.mounting.Load(key)
	last, _ := said.(mounting)
	return last.mounts, ok && last.uid == local.GetUID()
}

// Mounts takes the volumes of a pod that is about to be offloaded: the tokens should be there as early as the
// pod. nil: none.
func (h *Handler) Mounts(key engine.Key, uid types.UID, volumes any) {
	says := mounting{uid: uid, mounts: access.MountsSecret(volumes, h.RemoteName(key.Name))}
	if before, known := h.mounting.Swap(key, says); known && before == says {
		return
	}
	h.Enqueue(key)
}
