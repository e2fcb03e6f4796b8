// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

// TestAPodIsValidWithoutALimitRange checks that a pod that a LimitRange of the provider makes invalid is created when
// the LimitRange is gone, without a change on the consumer.
func TestAPodIsValidWithoutALimitRange(t *testing.T) {
	namespace := extended(t)
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")},
	}}}}
	provider.Create(t, limits)
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a"}}}}
	controllertest.Eventually(t, "the LimitRange to be in force", func() error {
		tried := probe.DeepCopy()
		if err := provider.Client.Create(t.Context(), tried, client.DryRunAll); err != nil {
			return err
		}
		if len(tried.Spec.Containers[0].Resources.Limits) == 0 {
			return fmt.Errorf("there is no limit")
		}
		return nil
	})
	m := provider.StartManager(t)
	shadow := modest(namespace, "capped")
	provider.Create(t, shadow)
	event := provider.AwaitEvent(t, namespace, "ShadowPod", "capped", wire.FailedCreatePodReason)
	if !strings.Contains(event.Note, "cpu limit of 20m") {
		t.Errorf("note = %q, want the cause", event.Note)
	}
	attempts := len(m.Writes.About("POST", namespace, "/pods"))
	provider.Delete(t, limits)
	awaitPod(t, shadow, "")
	if attempts > 3 {
		t.Errorf("%d attempts while the LimitRange was there, want them minutes apart", attempts)
	}
	if events := provider.Events(t, namespace, "ShadowPod", "capped"); len(events) != 1 {
		t.Errorf("%d Events, want one", len(events))
	}
}

// TestFieldsThatTheAPIServerDrops checks that a pod whose sidecar would become an ordinary init container, which never
// ends, is not created, and that a pod that only loses less important fields is created, with a Warning.
func TestFieldsThatTheAPIServerDrops(t *testing.T) {
	namespace := extended(t)
	always := corev1.ContainerRestartPolicyAlways
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "main", Image: "a"}},
		InitContainers: []corev1.Container{{Name: "proxy", Image: "a", RestartPolicy: &always}}, NodeSelector: map[string]string{"disk": "fast"},
	}}
	// The policy drops fields, like an API server that does not have them.
	provider.Mutate(t, namespace, "", "pods", namespace, `
		(has(object.spec.initContainers) ? [JSONPatch{op: "remove", path: "/spec/initContainers/0/restartPolicy"}] : []) +
		(has(object.spec.nodeSelector) ? [JSONPatch{op: "remove", path: "/spec/nodeSelector"}] : [])`,
		probe, func() bool { return probe.Spec.NodeSelector == nil })
	m := provider.StartManager(t)
	sidecar := shadowPod(namespace, "sidecar")
	set(sidecar, []any{map[string]any{"name": "proxy", "image": "registry.example/proxy:1", "restartPolicy": "Always"}}, "spec", "pod", "initContainers")
	provider.Create(t, sidecar)
	event := provider.AwaitEvent(t, namespace, "ShadowPod", "sidecar", wire.FailedCreatePodReason)
	if !strings.Contains(event.Note, "spec.initContainers.proxy.restartPolicy") {
		t.Errorf("note = %q, want the field", event.Note)
	}
	plain := shadowPod(namespace, "plain")
	set(plain, map[string]any{"kubernetes.io/os": "linux"}, "spec", "pod", "nodeSelector")
	provider.Create(t, plain)
	awaitPod(t, plain, "")
	event = provider.AwaitEvent(t, namespace, "ShadowPod", "plain", "FieldsDropped")
	if !strings.Contains(event.Note, "spec.nodeSelector") {
		t.Errorf("note = %q, want the field", event.Note)
	}
	settle(t, namespace)
	if err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(sidecar), &corev1.Pod{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the pod with the sidecar: %v, want none", err)
	}
	if posts := m.Writes.About("POST", namespace, "/pods"); len(posts) < 2 {
		t.Errorf("posts = %q", posts)
	}
}

// TestAFieldOfADisabledFeature checks that the Event names the field and the version if the API server of the provider
// has a feature disabled and drops the field without an error, as an older API server would.
func TestAFieldOfADisabledFeature(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	shadow := shadowPod(namespace, "named")
	set(shadow, "db-0.example.com", "spec", "pod", "hostnameOverride")
	provider.Create(t, shadow)
	event := provider.AwaitEvent(t, namespace, "ShadowPod", "named", wire.FailedCreatePodReason)
	if !strings.Contains(event.Note, "drops spec.hostnameOverride") || !strings.Contains(event.Note, "(Kubernetes v1.") {
		t.Errorf("note = %q, want the field and the version", event.Note)
	}
	settle(t, namespace)
	if podExists(t, namespace, "named") {
		t.Error("the pod was created without its hostname")
	}
	if posts := m.Writes.About("POST", namespace, "/pods"); len(posts) > 3 {
		t.Errorf("posts = %q, want one attempt", posts)
	}
}
