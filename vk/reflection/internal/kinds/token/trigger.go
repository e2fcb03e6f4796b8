// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/podend"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/pods"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Shadows provides the ShadowPods. The handler of pods implements it.
type Shadows interface {
	// Shadow returns the cached ShadowPod of a pod. reflected is false if pods are not reflected in the namespace.
	Shadow(namespace, name string) (shadow *unstructured.Unstructured, reflected bool)
	// FollowShadows makes the scope wait until the ShadowPods have been read, and calls f with the name of each
	// ShadowPod that is deleted.
	FollowShadows(s *engine.Scope, f func(name string))
}

// mounting records whether the volumes of an offloaded pod include its tokens.
type mounting struct {
	uid    types.UID
	mounts bool
}

// ObjectMatters implements engine.Handler. It ignores most changes of pods, because they only change the status, which
// does not affect tokens.
func (h *Handler) ObjectMatters(before, pod *unstructured.Unstructured) bool {
	return before == nil || before.GetResourceVersion() == pod.GetResourceVersion() || before.GetUID() != pod.GetUID() ||
		raw.Annotations(before.Object)[wire.APIServerSupportAnnotation] != raw.Annotations(pod.Object)[wire.APIServerSupportAnnotation] ||
		podend.Finished(pods.Phase(raw.Status(before))) != podend.Finished(pods.Phase(raw.Status(pod)))
}

// Extend reconciles tokens when a ShadowPod is deleted (see mountsTokens).
func (h *Handler) Extend(s *engine.Scope) {
	if known, ok := engine.Peer[Shadows](h.Env); ok {
		known.FollowShadows(s, func(name string) { s.Enqueue(s.Key(name)) })
	}
}

// mountsTokens reports whether the ShadowPod mounts the tokens, or will mount them when it is created. Pods that were
// offloaded before tokens were supported do not mount them, and neither do pods that a plugin skips. Credentials of
// such pods must not be on the provider. known is false before the pod's chain has run. The Secret is then left
// unchanged.
func (h *Handler) mountsTokens(key queue.Key, local *unstructured.Unstructured) (mounts, known bool) {
	all, ok := engine.Peer[Shadows](h.Env)
	if !ok {
		return false, false
	}
	shadow, reflected := all.Shadow(key.Namespace, key.Name)
	if !reflected {
		return false, false
	}
	if shadow != nil && !copies.StandsForAnother(shadow, local) {
		for _, secret := range access.Secrets(raw.Map(raw.Nested(shadow.Object, "spec", "pod"))) {
			if secret == h.Copies.RemoteName(key.Name) {
				return true, true
			}
		}
		return false, true
	}
	said, ok := h.mounting.Load(key)
	last, _ := said.(mounting)
	return last.mounts, ok && last.uid == local.GetUID()
}

// Mounts records the volumes of a pod that will be offloaded, so that its tokens exist as early as the pod. volumes may
// be nil.
func (h *Handler) Mounts(key queue.Key, uid types.UID, volumes any) {
	says := mounting{uid: uid, mounts: access.MountsSecret(volumes, h.Copies.RemoteName(key.Name))}
	if before, known := h.mounting.Swap(key, says); known && before == says {
		return
	}
	h.Queue.Add(key)
}
