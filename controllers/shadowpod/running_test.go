// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/shadowpod"
)

// running makes the pod look as if a kubelet runs it. Only a running pod can be resized.
func running(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	provider.PatchStatus(t, pod, `{"status":{"phase":"Running","containerStatuses":[{"name":"main","image":"i","imageID":"i","ready":true,"restartCount":0,
		"state":{"running":{}},"resources":{"requests":{"cpu":"100m"}}}]}}`)
}

// TestRunningPodsAreResizedAndDebugged checks that kubectl debug and in-place resizes of the consumer's pod are applied
// to the provider's pod while it runs.
func TestRunningPodsAreResizedAndDebugged(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	shadow := shadowPod(namespace, "lively")
	set(shadow, []any{map[string]any{"name": "main", "image": "registry.example/main:1",
		"resources": map[string]any{"requests": map[string]any{"cpu": "100m"}}}}, "spec", "pod", "containers")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	running(t, pod)
	provider.Patch(t, shadow, `{"spec":{"pod":{
		"containers":[{"name":"main","image":"registry.example/main:1","resources":{"requests":{"cpu":"200m"}}}],
		"ephemeralContainers":[{"name":"debug","image":"registry.example/shell:1","targetContainerName":"main"}]}}}`)
	controllertest.Eventually(t, "the pod to follow", func() error {
		provider.Get(t, pod, namespace, "lively")
		if cpu := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "200m" {
			return fmt.Errorf("it requests %s", cpu)
		}
		if debuggers := pod.Spec.EphemeralContainers; len(debuggers) != 1 || debuggers[0].Name != "debug" || debuggers[0].TargetContainerName != "main" {
			return fmt.Errorf("ephemeral containers = %v", debuggers)
		}
		return nil
	})

	provider.Patch(t, shadow, `{"spec":{"pod":{"ephemeralContainers":[
		{"name":"debug","image":"registry.example/shell:1","targetContainerName":"main"},{"name":"again","image":"registry.example/shell:1"}]}}}`)
	controllertest.Eventually(t, "the second ephemeral container", func() error {
		provider.Get(t, pod, namespace, "lively")
		if n := len(pod.Spec.EphemeralContainers); n != 2 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	settle(t, namespace)
	if writes := m.Writes.About("PATCH", namespace, "/pods/lively/"); len(writes) != 3 {
		t.Errorf("writes = %q, want one resize and two of ephemeral containers", writes)
	}

	// A recreated pod does not run a debug container that was not requested again.
	first := pod.UID
	provider.Delete(t, pod)
	pod = awaitPod(t, shadow, first)
	provider.Patch(t, shadow, `{"spec":{"pod":{"activeDeadlineSeconds":600}}}`)
	controllertest.Eventually(t, "the deadline", func() error {
		provider.Get(t, pod, namespace, "lively")
		if pod.Spec.ActiveDeadlineSeconds == nil {
			return fmt.Errorf("there is none")
		}
		return nil
	})
	if len(pod.Spec.EphemeralContainers) > 0 {
		t.Errorf("ephemeral containers = %v, want none in a pod that was made again", pod.Spec.EphemeralContainers)
	}
}

// TestSubresourcesThatAreNotServed checks that an API server that cannot resize pods is distinguished from a pod that
// is gone.
func TestSubresourcesThatAreNotServed(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	shadow := shadowPod(namespace, "old")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	patch := client.RawPatch(types.MergePatchType, []byte(`{}`))
	if err := provider.Client.SubResource("transmogrify").Patch(t.Context(), pod, patch); !shadowpod.IsUnserved(err) {
		t.Errorf("a subresource that does not exist: %v", err)
	}
	gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gone"}}
	if err := provider.Client.SubResource("resize").Patch(t.Context(), gone, patch); !apierrors.IsNotFound(err) || shadowpod.IsUnserved(err) {
		t.Errorf("a pod that does not exist: %v", err)
	}
}

// TestARefusedSizeIsToldAndTheRestGoesOn checks that a size that the provider rejects is reported, and delays the other
// changes by only one request.
func TestARefusedSizeIsToldAndTheRestGoesOn(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	shadow := shadowPod(namespace, "large")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	running(t, pod)
	provider.Patch(t, shadow, `{"spec":{"pod":{"containers":[{"name":"main","image":"registry.example/main:2","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}],
		"ephemeralContainers":[{"name":"debug","image":"registry.example/shell:1"}]}}}`)
	event := provider.AwaitEvent(t, namespace, "ShadowPod", "large", wire.FailedUpdatePodReason)
	if !strings.Contains(event.Note, "resize") || !strings.Contains(event.Note, "cpu") {
		t.Errorf("note = %q, want what was refused, and why", event.Note)
	}
	controllertest.Eventually(t, "the image and the ephemeral container", func() error {
		provider.Get(t, pod, namespace, "large")
		if image := pod.Spec.Containers[0].Image; image != "registry.example/main:2" {
			return fmt.Errorf("it is %s", image)
		}
		if n := len(pod.Spec.EphemeralContainers); n != 1 {
			return fmt.Errorf("%d ephemeral containers", n)
		}
		return nil
	})
}

// TestARefusedDebuggerKeepsNothingBack checks that a refused debug container does not block a resize or the recreation
// of the pod. Tenants may not use the defaults of `kubectl debug`, and the debug container stays in the consumer's pod
// forever.
func TestARefusedDebuggerKeepsNothingBack(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	shadow := shadowPod(namespace, "debugged")
	set(shadow, []any{map[string]any{"name": "main", "image": "registry.example/main:1",
		"resources": map[string]any{"requests": map[string]any{"cpu": "100m"}}}}, "spec", "pod", "containers")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	running(t, pod)
	provider.Patch(t, shadow, `{"spec":{"pod":{"ephemeralContainers":[
		{"name":"debug","image":"registry.example/shell:1","securityContext":{"capabilities":{"add":["SYS_PTRACE"]}}}]}}}`)
	event := provider.AwaitEvent(t, namespace, "ShadowPod", "debugged", "RefusedByProvider")
	if !strings.Contains(event.Note, "SYS_PTRACE") {
		t.Errorf("note = %q, want what was refused", event.Note)
	}
	provider.Patch(t, shadow, `{"spec":{"pod":{"containers":[{"name":"main","image":"registry.example/main:1","resources":{"requests":{"cpu":"200m"}}}]}}}`)
	controllertest.Eventually(t, "the resize", func() error {
		provider.Get(t, pod, namespace, "debugged")
		if cpu := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "200m" {
			return fmt.Errorf("it requests %s", cpu)
		}
		return nil
	})
	if n := len(pod.Spec.EphemeralContainers); n > 0 {
		t.Errorf("it has %d ephemeral containers, want none", n)
	}
	first := pod.UID
	provider.Delete(t, pod)
	if again := awaitPod(t, shadow, first); len(again.Spec.EphemeralContainers) > 0 {
		t.Errorf("it was made again with %v", again.Spec.EphemeralContainers)
	}
}

// TestADebuggerThatAdmissionDenies checks that an Event names the reason if admission of the provider denies a debug
// container, that other changes are still applied, and that the debug container is added once it is allowed.
func TestADebuggerThatAdmissionDenies(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	shadow := shadowPod(namespace, "debugged")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	running(t, pod)
	const debugger = `"ephemeralContainers":[{"name":"debug","image":"registry.example/shell:1"}]`
	add := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{`+debugger+`}}`))
	attempt := func(c client.Client) error {
		return c.SubResource("ephemeralcontainers").Patch(t.Context(), pod.DeepCopy(), add, client.DryRunAll)
	}
	mend := provider.Deny(t, "no-debuggers-"+namespace, admissionv1.Update, "", "pods/ephemeralcontainers", namespace, attempt)
	provider.Patch(t, shadow, `{"spec":{"pod":{`+debugger+`}}}`)
	event := provider.AwaitEvent(t, namespace, "ShadowPod", "debugged", wire.FailedUpdatePodReason)
	if !strings.Contains(event.Note, "ephemeralcontainers") || !strings.Contains(event.Note, "the test denies this") {
		t.Errorf("note = %q, want what was denied, and why", event.Note)
	}
	provider.Patch(t, shadow, `{"spec":{"pod":{"activeDeadlineSeconds":600}}}`)
	aligned(t, pod, func() bool { return pod.Spec.ActiveDeadlineSeconds != nil })
	if len(m.Writes.Denied()) == 0 {
		t.Error("the policy denied nothing")
	}
	if n := len(pod.Spec.EphemeralContainers); n > 0 {
		t.Errorf("it has %d ephemeral containers, want none", n)
	}
	mend()
	turn := 0
	aligned(t, pod, func() bool { // the API server takes a moment to drop the policy
		turn++
		provider.Patch(t, shadow, fmt.Sprintf(`{"metadata":{"annotations":{"turn":"%d"}}}`, turn))
		return len(pod.Spec.EphemeralContainers) == 1
	})
	_ = m.Writes.Denied() // the policy may have denied more in this moment
}
