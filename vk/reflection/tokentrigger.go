// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/pods"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// tokenPodChanged enqueues a pod of this node when what changed concerns its tokens: most changes are of its status.
func (r *reflector) tokenPodChanged(before, pod *unstructured.Unstructured, deleted bool) {
	if deleted {
		r.m.events.OK(r.kind.Name, pod.GetUID())
	} else if before != nil && before.GetResourceVersion() != pod.GetResourceVersion() && sameForTokens(before, pod) {
		return
	}
	if t := r.m.extension(pod.GetNamespace()); t != nil {
		if c := t.of(r.kind.Name); c != nil {
			r.enqueue(t, c, raw.Key(pod))
		}
	}
}

func sameForTokens(before, pod *unstructured.Unstructured) bool {
	return before.GetUID() == pod.GetUID() &&
		raw.Annotations(before.Object)[wire.APIServerSupportAnnotation] == raw.Annotations(pod.Object)[wire.APIServerSupportAnnotation] &&
		pods.Finished(pods.Phase(raw.Status(before))) == pods.Finished(pods.Phase(raw.Status(pod)))
}

// watchShadows makes tokens follow the end of ShadowPods: see mountsTokens. They share the informer of the kind Pod, which
// comes before.
func (m *Manager) watchShadows(r *reflector, t *extension, c *copies) error {
	known := t.of(PodKind)
	if r.kind.Name != ServiceAccountKind || known == nil {
		return nil
	}
	return c.hear(known.informer, func(_, shadow *unstructured.Unstructured, deleted bool) {
		if deleted {
			r.enqueue(t, c, Key{Namespace: t.local, Name: shadow.GetName()})
		}
	})
}

// mountsTokens reports whether the ShadowPod mounts the tokens, or will when it is made. Pods that were offloaded before
// there were tokens do not, nor does one that a plugin keeps at home: no credential of theirs is to be on the provider.
// It is not known while the pod's chain has not run; then what there is stays as it is.
func (r *reflector) mountsTokens(t *extension, key Key, local *unstructured.Unstructured) (mounts, known bool) {
	shadows := t.of(PodKind)
	if shadows == nil {
		return false, false
	}
	if shadow := informer.Get(shadows.informer, t.remote, key.Name); shadow != nil && !standsForAnother(shadow, local) {
		return mountsSecret(raw.Nested(shadow.Object, "spec", "pod", "volumes"), r.remoteName(key.Name)), true
	}
	said, ok := r.mounting.Load(key)
	last, _ := said.(mounting)
	return last.mounts, ok && last.uid == local.GetUID()
}

// tellTokens tells the kind of the tokens what is to be offloaded of a pod, before that happens: the tokens should be
// there as early as the pod. nil volumes: nothing.
func (r *reflector) tellTokens(v *podView, volumes any) {
	tokens := r.m.reflector(ServiceAccountKind)
	if tokens == nil {
		return
	}
	says := mounting{uid: v.local.GetUID(), mounts: mountsSecret(volumes, tokens.remoteName(v.key.Name))}
	if before, known := tokens.mounting.Swap(v.key, says); known && before == says {
		return
	}
	tokens.queue.Add(v.key)
}

// mountsSecret reports whether one of the volumes projects the Secret.
func mountsSecret(volumes any, name string) bool {
	for _, source := range projections(volumes) {
		if raw.Nested(source, "secret", "name") == name {
			return true
		}
	}
	return false
}
