// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/asked"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/shadowpod"
)

const mirrored = "mirror.example/registry.example/main:1"

// mutating sets up admission on the provider that uses images from a mirror, increases memory, and sets labels,
// annotations and a deadline.
func mutating(t *testing.T, namespace string) {
	t.Helper()
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: map[string]string{"app": "probe"}, Annotations: map[string]string{"note": ""}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a"}}}}
	provider.Mutate(t, namespace, "", "pods", namespace, `[
		JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "mirror.example/" + object.spec.containers[0].image},
		JSONPatch{op: "add", path: "/spec/containers/0/resources", value: Object.spec.containers.resources{requests: {"cpu": "100m", "memory": "512Mi"}}},
		JSONPatch{op: "add", path: "/spec/activeDeadlineSeconds", value: 7200},
		JSONPatch{op: "add", path: "/metadata/labels/app", value: "theirs"},
		JSONPatch{op: "add", path: "/metadata/labels/team", value: "platform"},
		JSONPatch{op: "add", path: "/metadata/annotations/note", value: "theirs"}]`,
		probe, func() bool { return strings.HasPrefix(probe.Spec.Containers[0].Image, "mirror.example/") })
}

// modest returns a ShadowPod that requests little memory.
func modest(namespace, name string) *unstructured.Unstructured {
	shadow := shadowPod(namespace, name)
	return set(shadow, []any{map[string]any{"name": "main", "image": "registry.example/main:1",
		"resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "64Mi"}}}}, "spec", "pod", "containers")
}

// containers returns a patch for a ShadowPod that modest has returned.
func containers(image, cpu, memory string) string {
	return fmt.Sprintf(`{"spec":{"pod":{"containers":[{"name":"main","image":%q,"resources":{"requests":{"cpu":%q,"memory":%q}}}]}}}`, image, cpu, memory)
}

// aligned waits until holds returns true for the pod.
func aligned(t *testing.T, pod *corev1.Pod, holds func() bool) {
	t.Helper()
	key := client.ObjectKeyFromObject(pod)
	controllertest.Eventually(t, "pod "+key.Name+" to follow", func() error {
		provider.Get(t, pod, key.Namespace, key.Name)
		if !holds() {
			return fmt.Errorf("spec = %v, metadata = %v", pod.Spec, pod.ObjectMeta)
		}
		return nil
	})
}

func tolerating(pod *corev1.Pod, key string) bool {
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.Key == key {
			return true
		}
	}
	return false
}

func memoryOf(pod *corev1.Pod) string {
	return pod.Spec.Containers[0].Resources.Requests.Memory().String()
}

// TestChangesOfTheProviderOutliveThoseAtHome checks that changes that admission, an autoscaler or an administrator of
// the provider made to a pod stay when another field is changed on the consumer, even after a restart of the
// controller, and that changes on the consumer are applied, even in the same fields.
func TestChangesOfTheProviderOutliveThoseAtHome(t *testing.T) {
	namespace := extended(t)
	mutating(t, namespace)
	first := provider.StartManager(t)
	shadow := modest(namespace, "web")
	set(shadow, int64(9000), "spec", "pod", "activeDeadlineSeconds")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	running(t, pod)
	provider.Patch(t, pod, `{"metadata":{"labels":{"app":"changed"}}}`)
	settle(t, namespace)
	first.Stop(t)
	second := provider.StartManager(t)

	untouched := func(when string) {
		t.Helper()
		settle(t, namespace)
		provider.Get(t, pod, namespace, "web")
		if image := pod.Spec.Containers[0].Image; image != mirrored || memoryOf(pod) != "512Mi" || *pod.Spec.ActiveDeadlineSeconds != 7200 {
			t.Errorf("%s the image is %s, memory %s, the deadline %d", when, image, memoryOf(pod), *pod.Spec.ActiveDeadlineSeconds)
		}
		if pod.Labels["app"] != "changed" || pod.Labels["team"] != "platform" || pod.Annotations["note"] != "theirs" {
			t.Errorf("%s labels = %v, annotations = %v", when, pod.Labels, pod.Annotations)
		}
	}
	untouched("after a restart")
	if writes := second.Writes.About("PATCH", namespace, "/pods/web"); len(writes) > 0 {
		t.Errorf("writes after a restart = %q, want none", writes)
	}
	provider.Patch(t, shadow, `{"spec":{"pod":{"ephemeralContainers":[{"name":"debug","image":"registry.example/shell:1"}]}}}`)
	aligned(t, pod, func() bool { return len(pod.Spec.EphemeralContainers) == 1 })
	untouched("with a debugger")
	provider.Patch(t, shadow, `{"spec":{"pod":{"tolerations":[{"key":"node.kubernetes.io/disk-pressure","operator":"Exists","effect":"NoExecute"}]}}}`)
	aligned(t, pod, func() bool { return tolerating(pod, "node.kubernetes.io/disk-pressure") })
	untouched("with another toleration")
	provider.Patch(t, shadow, `{"metadata":{"labels":{"new":"1"}}}`)
	aligned(t, pod, func() bool { return pod.Labels["new"] == "1" })
	untouched("with another label")
	provider.Patch(t, shadow, containers("registry.example/main:1", "200m", "64Mi"))
	aligned(t, pod, func() bool { return pod.Spec.Containers[0].Resources.Requests.Cpu().String() == "200m" })
	untouched("with more CPU")

	provider.Patch(t, shadow, containers("registry.example/main:2", "200m", "600Mi"))
	provider.Patch(t, shadow, `{"metadata":{"labels":{"app":"next"},"annotations":{"note":"two"}},"spec":{"pod":{"activeDeadlineSeconds":600}}}`)
	aligned(t, pod, func() bool {
		return pod.Spec.Containers[0].Image == "registry.example/main:2" && memoryOf(pod) == "600Mi" && *pod.Spec.ActiveDeadlineSeconds == 600 &&
			pod.Labels["app"] == "next" && pod.Annotations["note"] == "two"
	})
	provider.Patch(t, shadow, containers("registry.example/main:1", "200m", "600Mi"))
	aligned(t, pod, func() bool { return pod.Spec.Containers[0].Image == "registry.example/main:1" })
}

// TestFieldsThatCannotChangeStayAsAdmissionSetThem checks that immutable fields that the provider's admission has set
// in a pod stay when a toleration is added on the consumer, in addition to the one that admission has added, and when
// the consumer changes the same fields of the ShadowPod.
func TestFieldsThatCannotChangeStayAsAdmissionSetThem(t *testing.T) {
	namespace := extended(t)
	shadow := shadowPod(namespace, "web")
	set(shadow, []any{map[string]any{"ip": "10.1.1.1", "hostnames": []any{"home"}}}, "spec", "pod", "hostAliases")
	notReady := map[string]any{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
	set(shadow, []any{notReady}, "spec", "pod", "tolerations")
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{
		Tolerations: []corev1.Toleration{{Key: "probe"}}, Containers: []corev1.Container{{Name: "main", Image: "a"}}}}
	provider.Mutate(t, namespace, "", "pods", namespace, `[
		JSONPatch{op: "add", path: "/spec/hostAliases", value: [{"ip": dyn("10.9.9.9"), "hostnames": dyn(["mirror"])}]},
		JSONPatch{op: "add", path: "/spec/topologySpreadConstraints", value: [{
			"maxSkew": dyn(1), "topologyKey": dyn("zone"), "whenUnsatisfiable": dyn("ScheduleAnyway")}]},
		JSONPatch{op: "add", path: "/spec/tolerations/-", value: {"key": "spot", "operator": "Exists"}}]`,
		probe, func() bool { return tolerating(probe, "spot") })
	first := provider.StartManager(t)
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	running(t, pod)
	settle(t, namespace)
	first.Stop(t)
	m := provider.StartManager(t)
	untouched := func(when string, writes int) {
		t.Helper()
		settle(t, namespace)
		provider.Get(t, pod, namespace, "web")
		aliases, spread := pod.Spec.HostAliases, pod.Spec.TopologySpreadConstraints
		isKept := len(aliases) == 1 && aliases[0].IP == "10.9.9.9" && len(spread) == 1 && spread[0].TopologyKey == "zone"
		if !isKept || !tolerating(pod, "spot") {
			t.Errorf("%s host aliases = %v, spread constraints = %v, tolerations = %v", when, aliases, spread, pod.Spec.Tolerations)
		}
		if sent := m.Writes.About("PATCH", namespace, "/pods/web"); len(sent) != writes {
			t.Errorf("%s writes = %q, want %d", when, sent, writes)
		}
	}
	untouched("after a restart", 0)
	provider.Patch(t, shadow, `{"spec":{"pod":{"tolerations":[
		{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute"},
		{"key":"node.kubernetes.io/disk-pressure","operator":"Exists","effect":"NoExecute"}]}}}`)
	aligned(t, pod, func() bool { return tolerating(pod, "node.kubernetes.io/disk-pressure") })
	untouched("with another toleration", 1)
	generation := pod.Annotations[shadowpod.GenerationAnnotation]
	provider.Patch(t, shadow, `{"spec":{"pod":{"hostAliases":[{"ip":"10.1.1.2","hostnames":["home"]}],
		"topologySpreadConstraints":[{"maxSkew":2,"topologyKey":"host","whenUnsatisfiable":"ScheduleAnyway"}]}}}`)
	aligned(t, pod, func() bool { return pod.Annotations[shadowpod.GenerationAnnotation] != generation })
	untouched("with fields that cannot change", 2)
}

// TestARefusedSizeLeavesOthersAlone checks that a size that was rejected stays in the ShadowPod, but the size that an
// autoscaler has set is not reverted.
func TestARefusedSizeLeavesOthersAlone(t *testing.T) {
	namespace := extended(t)
	mutating(t, namespace)
	provider.StartManager(t)
	shadow := modest(namespace, "web")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	running(t, pod)
	provider.Patch(t, shadow, `{"spec":{"pod":{"containers":[{"name":"main","image":"registry.example/main:2",
		"resources":{"requests":{"cpu":"2","memory":"64Mi"},"limits":{"cpu":"1"}}}]}}}`)
	provider.AwaitEvent(t, namespace, "ShadowPod", "web", wire.FailedUpdatePodReason)
	aligned(t, pod, func() bool { return pod.Spec.Containers[0].Image == "registry.example/main:2" })
	provider.Patch(t, shadow, containers("registry.example/main:1", "100m", "64Mi"))
	aligned(t, pod, func() bool { return pod.Spec.Containers[0].Image == "registry.example/main:1" })
	if cpu := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "100m" || memoryOf(pod) != "512Mi" {
		t.Errorf("it requests %s CPU and %s memory", cpu, memoryOf(pod))
	}
}

// older makes a pod look like a pod of an earlier version: without a record, and with the labels and annotations of the
// ShadowPod.
func older(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	provider.Patch(t, pod, fmt.Sprintf(`{"metadata":{"labels":{"app":%q},"annotations":{%q:null,"note":"one"}}}`, pod.Name, asked.Annotation))
}

// TestPodsOfAnEarlierVersion checks that in a pod of an earlier version, only changes that are made after the upgrade
// are applied.
func TestPodsOfAnEarlierVersion(t *testing.T) {
	namespace := extended(t)
	mutating(t, namespace)
	first := provider.StartManager(t)
	known, doubtful := modest(namespace, "known"), modest(namespace, "doubtful")
	pods := map[*unstructured.Unstructured]*corev1.Pod{}
	for _, shadow := range []*unstructured.Unstructured{known, doubtful} {
		provider.Create(t, shadow)
		pods[shadow] = awaitPod(t, shadow, "")
		running(t, pods[shadow])
	}
	settle(t, namespace)
	first.Stop(t)
	for _, pod := range pods {
		older(t, pod)
	}
	provider.Patch(t, doubtful, containers("registry.example/main:2", "100m", "128Mi"))
	provider.Patch(t, doubtful, `{"spec":{"pod":{"ephemeralContainers":[{"name":"debug","image":"registry.example/shell:1"}]}}}`)

	second := provider.StartManager(t)
	settle(t, namespace)
	if writes := second.Writes.About("PATCH", namespace, "/pods/known"); len(writes) > 0 {
		t.Errorf("writes = %q, want none to a pod because of the upgrade", writes)
	}
	pod := pods[known]
	provider.Patch(t, known, `{"spec":{"pod":{"ephemeralContainers":[{"name":"debug","image":"registry.example/shell:1"}]}}}`)
	aligned(t, pod, func() bool { return len(pod.Spec.EphemeralContainers) == 1 && pod.Annotations[asked.Annotation] != "" })
	if pod.Spec.Containers[0].Image != mirrored || memoryOf(pod) != "512Mi" {
		t.Errorf("the image is %s, memory %s", pod.Spec.Containers[0].Image, memoryOf(pod))
	}
	provider.Patch(t, known, containers("registry.example/main:2", "100m", "64Mi"))
	aligned(t, pod, func() bool { return pod.Spec.Containers[0].Image == "registry.example/main:2" })

	pod = pods[doubtful]
	event := provider.AwaitEvent(t, namespace, "ShadowPod", "doubtful", wire.FailedUpdatePodReason)
	if !strings.Contains(event.Note, "delete the pod") {
		t.Errorf("note = %q, want the remedy", event.Note)
	}
	aligned(t, pod, func() bool { return len(pod.Spec.EphemeralContainers) == 1 && pod.Annotations[asked.Annotation] != "" })
	if pod.Spec.Containers[0].Image != mirrored || memoryOf(pod) != "512Mi" {
		t.Errorf("the image is %s, memory %s", pod.Spec.Containers[0].Image, memoryOf(pod))
	}
	provider.Patch(t, doubtful, containers("registry.example/main:3", "100m", "128Mi"))
	aligned(t, pod, func() bool {
		return pod.Spec.Containers[0].Image == "registry.example/main:3" && memoryOf(pod) == "512Mi"
	})
}

// TestTheRecordIsNotTheConsumers checks that the record of the pod is not affected if a consumer writes a record into
// its ShadowPod.
func TestTheRecordIsNotTheConsumers(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	shadow := modest(namespace, "forged")
	shadow.SetAnnotations(map[string]string{asked.Annotation: "v1:."})
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	record := pod.Annotations[asked.Annotation]
	if len(record) <= len("v1:.") {
		t.Errorf("record = %q, want that of the controller", record)
	}
	provider.Patch(t, shadow, fmt.Sprintf(`{"metadata":{"annotations":{%q:"v1:AAAA.","other":"1"}}}`, asked.Annotation))
	aligned(t, pod, func() bool { return pod.Annotations["other"] == "1" })
	if asked.Read(pod.Annotations) == nil || pod.Annotations[asked.Annotation] == "v1:AAAA." {
		t.Errorf("record = %q", pod.Annotations[asked.Annotation])
	}

	// The consumer's record is also ignored if the pod's own record is too large to be written.
	annotations := map[string]string{asked.Annotation: "v1:.", shadowpod.SpentAnnotation: "debugger"}
	for i := range int64(5600) {
		annotations[strconv.FormatInt(i, 36)] = ""
	}
	large := modest(namespace, "forged-large")
	large.SetAnnotations(annotations)
	provider.Create(t, large)
	pod = awaitPod(t, large, "")
	for _, ours := range []string{asked.Annotation, shadowpod.SpentAnnotation} {
		if value, has := pod.Annotations[ours]; has {
			t.Errorf("%s = %q, which the consumer has written", ours, value)
		}
	}
}
