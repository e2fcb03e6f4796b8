// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

// withCPU returns the containers a, b, … with these amounts of CPU.
func withCPU(amounts ...string) (containers []any) {
	for i, amount := range amounts {
		cpu := map[string]any{"cpu": amount}
		containers = append(containers, map[string]any{"name": string(rune('a' + i)), "image": "i", "resources": map[string]any{"requests": cpu, "limits": cpu}})
	}
	return containers
}

// runningWith creates a ShadowPod with the containers of withCPU, and sets its pod to running.
func runningWith(t *testing.T, namespace, name string, amounts ...string) (*unstructured.Unstructured, *corev1.Pod) {
	t.Helper()
	shadow := shadowPod(namespace, name)
	provider.Create(t, set(shadow, withCPU(amounts...), "spec", "pod", "containers"))
	pod := awaitPod(t, shadow, "")
	var statuses []string
	for i, amount := range amounts {
		statuses = append(statuses, fmt.Sprintf(`{"name":"%c","image":"i","imageID":"i","ready":true,"restartCount":0,"state":{"running":{}},
			"resources":{"requests":{"cpu":%q},"limits":{"cpu":%q}}}`, 'a'+i, amount, amount))
	}
	provider.PatchStatus(t, pod, `{"status":{"phase":"Running","containerStatuses":[`+strings.Join(statuses, ",")+`]}}`)
	return shadow, pod
}

// resizeTo changes the sizes of all containers with one write, as a user of the consumer does.
func resizeTo(t *testing.T, shadow *unstructured.Unstructured, amounts ...string) {
	t.Helper()
	containers, err := json.Marshal(withCPU(amounts...))
	require.NoError(t, err)
	provider.Patch(t, shadow, `{"spec":{"pod":{"containers":`+string(containers)+`}}}`)
}

func awaitCPU(t *testing.T, pod *corev1.Pod, want ...string) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("the sizes %v", want), func() error {
		provider.Get(t, pod, pod.Namespace, pod.Name)
		var got []string
		for i := range pod.Spec.Containers {
			got = append(got, pod.Spec.Containers[i].Resources.Requests.Cpu().String())
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("they are %v", got)
		}
		return nil
	})
}

// TestAResizeOfManyContainersIsOneWrite checks that a resize on the consumer causes one write on the provider,
// regardless of the number of containers.
func TestAResizeOfManyContainersIsOneWrite(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	shadow, pod := runningWith(t, namespace, "three", "100m", "100m", "100m")
	resizeTo(t, shadow, "200m", "300m", "400m")
	awaitCPU(t, pod, "200m", "300m", "400m")
	settle(t, namespace)
	if writes := m.Writes.About("PATCH", namespace, "/pods/three/resize"); len(writes) != 1 {
		t.Errorf("writes = %q, want one resize", writes)
	}
}

// TestSizesThatFitTogetherAreNotRefused checks that the sizes are written together if one container grows by the amount
// by which another one shrinks. Otherwise the pod would temporarily exceed its limit.
func TestSizesThatFitTogetherAreNotRefused(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	most := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m")}
	provider.Create(t, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypePod, Max: most}}}})
	shadow, pod := runningWith(t, namespace, "shifted", "100m", "200m")
	resizeTo(t, shadow, "200m", "100m")
	awaitCPU(t, pod, "200m", "100m")
	if writes := m.Writes.About("PATCH", namespace, "/pods/shifted/resize"); len(writes) != 1 {
		t.Errorf("writes = %q, want one resize", writes)
	}
}

// TestARefusedSizeDoesNotKeepTheOthersBack checks that a rejected size delays the other sizes by only one request.
func TestARefusedSizeDoesNotKeepTheOthersBack(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	most := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	provider.Create(t, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: most}}}})
	shadow, pod := runningWith(t, namespace, "partly", "100m", "100m", "100m")
	resizeTo(t, shadow, "200m", "600m", "300m")
	awaitCPU(t, pod, "200m", "100m", "300m")
	event := provider.AwaitEvent(t, namespace, "ShadowPod", "partly", wire.FailedUpdatePodReason)
	if !strings.Contains(event.Note, "500m") {
		t.Errorf("note = %q, want what was refused, and why", event.Note)
	}
}
