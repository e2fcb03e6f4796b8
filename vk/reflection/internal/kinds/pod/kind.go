// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package pod reflects the pods of the node: each has a ShadowPod on the provider, whose controllers create and
// maintain the provider's pod, and report its status.
package pod

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/podend"
	"github.com/refract-project/refract/vk/reflection/internal/access"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/objects"
	"github.com/refract-project/refract/vk/reflection/internal/pods"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Name is the name of the kind.
const Name = "Pod"

var podsResource = corev1.SchemeGroupVersion.WithResource("pods")

// Kind returns the kind of pods.
func Kind() engine.Kind {
	return engine.Kind{
		Name: Name, Source: podsResource, Policy: engine.Always, Workers: 10, PerNode: true,
		Copy: copies.Spec{
			GVR: offloadingv1beta1.ShadowPodGVR, GVK: offloadingv1beta1.GroupVersion.WithKind(offloadingv1beta1.ShadowPodKind), Mode: copies.Replace,
			Payload: "spec", Into: []string{"spec", "pod"},
			DropAnnotations: []string{RemoteGatesAnnotation, RemoteReferencesAnnotation},
			KeepLabels:      []string{wire.CreatorUserLabel},
			Changeable:      pods.Changeable,
		},
		Status:  objects.Status{Handled: true},
		Follows: engine.Follows{APIServer: true}, Cache: engine.Cache{Copies: keep},
		Handler: func(env *engine.Env) (engine.Handler, error) { return &Handler{Base: engine.Base{Env: env}}, nil },
	}
}

// keep returns the part of a ShadowPod's spec that is cached: the fields that may still change in its pod, and the
// names of the Secrets with its tokens.
func keep(spec map[string]any) map[string]any {
	kept := pods.Changeable(spec)
	access.KeepSecrets(spec, kept)
	return kept
}

// Handler implements engine.Handler. It offloads pods.
type Handler struct {
	engine.Base
	states  sync.Map // queue.Key to *podState
	blocked blocked
	// admitted contains the pods of the node that a kubelet would have admitted.
	admitted admitted
	reviews  reviews
}

// Extend implements engine.Handler. It watches the provider's pods.
func (h *Handler) Extend(s *engine.Scope) {
	// The specs are not cached, because the specs of the provider's pods are not used here.
	s.State = s.WatchRemote(podsResource, informer.DropSpec, func(_, object *unstructured.Unstructured, _ bool) { s.Enqueue(s.Key(object.GetName())) })
}

// Derived implements engine.Handler. It returns the provider's pod.
func (h *Handler) Derived(s *engine.Scope, name string) *unstructured.Unstructured {
	remote, _ := s.State.(*informer.Informer)
	return remote.Get(s.Remote, name)
}

// NamespacesChanged implements engine.Handler. It enqueues the pods of this node whose namespaces are not offloaded.
func (h *Handler) NamespacesChanged() {
	for _, pod := range h.OfNode() {
		if !h.IsExtended(pod.GetNamespace()) {
			h.Queue.Add(raw.Key(pod))
		}
	}
}

// CopyMatters implements engine.Handler. A change to a ShadowPod that only reports the phase of its pod does not
// matter, because the pod itself is watched. A final phase does matter, because the pod may no longer exist to report
// it.
func (h *Handler) CopyMatters(before, shadow *unstructured.Unstructured) bool {
	if before == nil || before.GetResourceVersion() == shadow.GetResourceVersion() {
		return true
	}
	return podend.Finished(corev1.PodPhase(raw.Text(shadow, "status", "phase"))) || before.GetGeneration() != shadow.GetGeneration() ||
		!raw.Equal(raw.Labels(before.Object), raw.Labels(shadow.Object)) || !raw.Equal(raw.Annotations(before.Object), raw.Annotations(shadow.Object)) ||
		before.GetUID() != shadow.GetUID() || (before.GetDeletionTimestamp() == nil) != (shadow.GetDeletionTimestamp() == nil)
}
