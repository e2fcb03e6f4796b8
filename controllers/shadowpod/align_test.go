// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

func TestMetadataFollowsTheShadowPod(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	shadow := shadowPod(namespace, "meta")
	shadow.SetLabels(map[string]string{"keep": "1", "drop": "1", wire.OriginLabel: "consumer"})
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	provider.Patch(t, pod, `{"metadata":{"labels":{"theirs":"1"},"annotations":{"theirs":"1"}}}`)
	provider.Patch(t, shadow, `{"metadata":{"labels":{"drop":null,"new":"1"},"annotations":{"note":"two","slash/key":"x"}}}`)

	controllertest.Eventually(t, "the pod to follow", func() error {
		provider.Get(t, pod, namespace, "meta")
		_, dropped := pod.Labels["drop"]
		if dropped || pod.Labels["new"] != "1" || pod.Annotations["note"] != "two" || pod.Annotations["slash/key"] != "x" {
			return fmt.Errorf("labels = %v, annotations = %v", pod.Labels, pod.Annotations)
		}
		return nil
	})
	if pod.Labels["theirs"] != "1" || pod.Annotations["theirs"] != "1" || pod.Labels["keep"] != "1" {
		t.Errorf("labels = %v, annotations = %v, want those of others kept", pod.Labels, pod.Annotations)
	}
	settle(t, namespace)
	if writes := m.Writes.About("PATCH", namespace, "/pods/meta"); len(writes) != 1 {
		t.Errorf("writes = %q, want one", writes)
	}
}

// TestALabelTakenFromThePodIsPutBack checks that the labels with which Refract finds, counts and restricts pods are
// restored. The provider may change all other labels.
func TestALabelTakenFromThePodIsPutBack(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	shadow := shadowPod(namespace, "stripped")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	// The patch removes the label without which a pod is not in the cache, and changes other labels.
	provider.Patch(t, pod, fmt.Sprintf(`{"metadata":{"labels":{%q:null,%q:"other","app":"changed"}}}`, wire.ManagedByLabel, wire.OriginLabel))
	controllertest.Eventually(t, "the labels to be back", func() error {
		provider.Get(t, pod, namespace, "stripped")
		if pod.Labels[wire.ManagedByLabel] != wire.ManagedByShadowPod || pod.Labels[wire.OriginLabel] != "consumer" {
			return fmt.Errorf("labels = %v", pod.Labels)
		}
		return nil
	})
	if pod.Labels["app"] != "changed" {
		t.Errorf("labels = %v, want that of the provider kept", pod.Labels)
	}
}

func TestWhatMayChangeInAPodIsPushed(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	shadow := shadowPod(namespace, "mutable")
	set(shadow, []any{map[string]any{"name": "init", "image": "registry.example/init:1"}}, "spec", "pod", "initContainers")
	provider.Create(t, shadow)
	awaitPod(t, shadow, "")
	provider.Patch(t, shadow, `{"spec":{"pod":{
		"containers":[{"name":"main","image":"registry.example/main:2"}],
		"initContainers":[{"name":"init","image":"registry.example/init:2"}],
		"activeDeadlineSeconds":600,
		"tolerations":[{"key":"node.kubernetes.io/disk-pressure","operator":"Exists","effect":"NoExecute","tolerationSeconds":30}]}}}`)

	pod := &corev1.Pod{}
	controllertest.Eventually(t, "the pod to follow", func() error {
		provider.Get(t, pod, namespace, "mutable")
		if pod.Spec.Containers[0].Image != "registry.example/main:2" || pod.Spec.InitContainers[0].Image != "registry.example/init:2" {
			return fmt.Errorf("images = %s, %s", pod.Spec.Containers[0].Image, pod.Spec.InitContainers[0].Image)
		}
		return nil
	})
	if deadline := pod.Spec.ActiveDeadlineSeconds; deadline == nil || *deadline != 600 {
		t.Errorf("activeDeadlineSeconds = %v, want 600", deadline)
	}
	found := false
	for _, toleration := range pod.Spec.Tolerations {
		found = found || toleration.Key == "node.kubernetes.io/disk-pressure" && *toleration.TolerationSeconds == 30
	}
	if !found {
		t.Errorf("tolerations = %v, want the new one too", pod.Spec.Tolerations)
	}
	settle(t, namespace)
	if writes := m.Writes.About("PATCH", namespace, "/pods/mutable"); len(writes) != 1 {
		t.Errorf("writes = %q, want one for all of it", writes)
	}
}

// TestWhatTheProviderChangedInThePodStays checks that the change is not reverted if the provider's admission rewrites
// images.
func TestWhatTheProviderChangedInThePodStays(t *testing.T) {
	namespace := extended(t)
	first := provider.StartManager(t)
	shadow := shadowPod(namespace, "mirrored")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	pod.Spec.Containers[0].Image = "mirror.example/main:1"
	require.NoError(t, provider.Client.Update(t.Context(), pod))
	first.Stop(t)

	second := provider.StartManager(t)
	settle(t, namespace)
	if writes := second.Writes.About(namespace, "mirrored"); len(writes) != 0 {
		t.Errorf("writes = %q, want none", writes)
	}
}
