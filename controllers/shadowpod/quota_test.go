// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/internal/ledger"
)

// limited creates a consumer with a Quota for its user, who has the same name, and returns a namespace that the
// consumer has offloaded.
func limited(t *testing.T, consumer string, resources corev1.ResourceList) (namespace string, q *offloading.Quota) {
	t.Helper()
	tenant := provider.Namespace(t)
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}, fmt.Sprintf(
		`{"metadata":{"labels":{%q:"true",%q:%q}}}`, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel, consumer))
	q = &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: consumer}, Spec: offloading.QuotaSpec{User: consumer, Resources: resources}}
	provider.Create(t, q)
	return provider.Extended(t, consumer), q
}

// asking returns a ShadowPod that requests the given CPU. Its creator is the consumer's user, who has the same name
// as the consumer.
func asking(namespace, name, consumer, cpu string) *unstructured.Unstructured {
	shadow := shadowPod(namespace, name)
	shadow.SetLabels(map[string]string{wire.OriginLabel: consumer, wire.CreatorUserLabel: consumer})
	return set(shadow, []any{map[string]any{"name": "main", "image": "a", "resources": map[string]any{"requests": map[string]any{"cpu": cpu}}}}, "spec", "pod", "containers")
}

func awaitRefusal(t *testing.T, shadow *unstructured.Unstructured, words string) {
	t.Helper()
	controllertest.Eventually(t, "the refusal of "+shadow.GetName(), func() error {
		provider.Get(t, shadow, shadow.GetNamespace(), shadow.GetName())
		if status, message := admitted(shadow); status != "False" || !strings.Contains(message, words) {
			return fmt.Errorf("the condition is %q: %s", status, message)
		}
		return nil
	})
	if podExists(t, shadow.GetNamespace(), shadow.GetName()) {
		t.Errorf("there is a pod %s", shadow.GetName())
	}
}

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// TestQuota checks that a pod that exceeds a Quota waits, that this is reported once, and that the pod is created when
// another pod is gone, and not earlier.
func TestQuota(t *testing.T) {
	namespace, q := limited(t, "padua", quantities("cpu", "1"))
	m := provider.StartManager(t)
	first, second, third := asking(namespace, "first", "padua", "400m"), asking(namespace, "second", "padua", "400m"), asking(namespace, "third", "padua", "900m")
	for _, shadow := range []*unstructured.Unstructured{first, second} {
		provider.Create(t, shadow)
		awaitPod(t, shadow, "")
	}
	provider.Create(t, third)
	awaitRefusal(t, third, "cpu: requested 900m, used 800m, limited 1")
	controllertest.Eventually(t, "the Event about the third", func() error { // the Event is written asynchronously
		if events := provider.Events(t, namespace, "ShadowPod", "third"); len(events) != 1 {
			return fmt.Errorf("the Events are %v, want one", events)
		}
		return nil
	})

	// A new manager process computes the same usage.
	m.Stop(t)
	provider.StartManager(t)
	fourth := asking(namespace, "fourth", "padua", "500m")
	provider.Create(t, fourth)
	awaitRefusal(t, fourth, "cpu: requested 500m, used 800m, limited 1")
	small := asking(namespace, "small", "padua", "200m")
	provider.Create(t, small)
	awaitPod(t, small, "")

	// A terminating pod counts until it is gone.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "first"}}
	provider.Patch(t, pod, `{"metadata":{"finalizers":["example.com/held"]}}`)
	provider.Delete(t, first)
	controllertest.Eventually(t, "the first pod to go", func() error {
		provider.Get(t, pod, namespace, "first")
		if pod.DeletionTimestamp == nil {
			return fmt.Errorf("it is not being deleted")
		}
		return nil
	})
	late := asking(namespace, "late", "padua", "100m")
	provider.Create(t, late)
	awaitRefusal(t, late, "cpu: requested 100m, used 1, limited 1")
	provider.Patch(t, pod, `{"metadata":{"finalizers":null}}`)
	awaitPod(t, late, "")

	// A larger Quota admits the pods that have waited.
	provider.Patch(t, q, `{"spec":{"resources":{"cpu":"4"}}}`)
	awaitPod(t, third, "")
	awaitPod(t, fourth, "")

	// A running pod cannot grow beyond the Quota.
	provider.Patch(t, q, `{"spec":{"resources":{"cpu":"1400m"}}}`)
	provider.Patch(t, second, `{"spec":{"pod":{"containers":[{"name":"main","image":"a","resources":{"requests":{"cpu":"3"}}}]}}}`)
	controllertest.Eventually(t, "the Event about the resize", func() error {
		if events := fmt.Sprint(provider.Events(t, namespace, "ShadowPod", "second")); !strings.Contains(events, "cpu: requested 3") {
			return fmt.Errorf("events %s", events)
		}
		return nil
	})
}

// TestQuotaUnderLoad checks that many concurrent pods cannot exceed a Quota together, and that the pods of another
// consumer do not count.
func TestQuotaUnderLoad(t *testing.T) {
	namespace, _ := limited(t, "trapani", quantities("cpu", "100", "pods", "5"))
	other, _ := limited(t, "agrigento", quantities("pods", "2"))
	provider.StartManager(t)
	for i := range 20 {
		provider.Create(t, asking(namespace, fmt.Sprintf("web-%d", i), "trapani", "1m"))
	}
	neighbour := set(asking(other, "web", "agrigento", "0"), []any{map[string]any{"name": "main", "image": "a"}}, "spec", "pod", "containers")
	provider.Create(t, neighbour)
	awaitPod(t, neighbour, "")
	controllertest.Eventually(t, "all of them to be decided", func() error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(offloading.GroupVersion.WithKind("ShadowPodList"))
		pods := &corev1.PodList{}
		if err := provider.Client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if err := provider.Client.List(t.Context(), pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(pods.Items) > 5 {
			t.Fatalf("there are %d pods", len(pods.Items))
		}
		refused := 0
		for i := range list.Items {
			if status, _ := admitted(&list.Items[i]); status == "False" {
				refused++
			}
		}
		if len(pods.Items)+refused != 20 {
			return fmt.Errorf("%d pods, %d refused", len(pods.Items), refused)
		}
		return nil
	})
}

// TestQuotaRules checks that a cordoned Quota admits no new pods, but a lost pod is recreated, and that the
// declarations that a Quota requires are enforced.
func TestQuotaRules(t *testing.T) {
	namespace, q := limited(t, "enna", quantities("cpu", "10", "memory", "10Gi"))
	provider.Delete(t, q)
	provider.StartManager(t, func(o *controllers.Options) {
		o.RecordAfter, o.Quotas = time.Millisecond, ledger.Options{Limits: offloading.SoftLimitsEnforcement}
	})
	// The pod was created before Quotas existed, when the creator was not recorded.
	old := asking(namespace, "old", "enna", "1")
	old.SetLabels(map[string]string{wire.OriginLabel: "enna"})
	provider.Create(t, old)
	first := awaitPod(t, old, "")
	provider.PatchStatus(t, first, `{"status":{"phase":"Running"}}`)
	awaitPhase(t, old, corev1.PodRunning)
	q.ResourceVersion = ""
	provider.Create(t, q)
	provider.Delete(t, first)
	awaitPod(t, old, first.UID)

	silent := asking(namespace, "silent", "enna", "1")
	provider.Create(t, silent)
	awaitRefusal(t, silent, "a request of memory is mandatory")
	stranger := asking(namespace, "stranger", "enna", "1")
	stranger.SetLabels(map[string]string{wire.OriginLabel: "enna", wire.CreatorUserLabel: "somebody"})
	provider.Create(t, stranger)
	awaitRefusal(t, stranger, "has no Quota")

	// The old pod counts, and further pods without a creator must fit into the Quota, too.
	provider.Patch(t, q, `{"spec":{"limitsEnforcement":"None"}}`)
	nobodys := asking(namespace, "nobodys", "enna", "9500m")
	nobodys.SetLabels(map[string]string{wire.OriginLabel: "enna"})
	provider.Create(t, nobodys)
	awaitRefusal(t, nobodys, "cpu: requested 9500m, used 1, limited 10")
	provider.Delete(t, nobodys)
	good := asking(namespace, "good", "enna", "1")
	provider.Create(t, good)
	pod := awaitPod(t, good, "")
	provider.PatchStatus(t, pod, `{"status":{"phase":"Running"}}`)
	awaitPhase(t, good, corev1.PodRunning)
	provider.Patch(t, q, `{"spec":{"cordoned":true}}`)
	fresh := asking(namespace, "fresh", "enna", "1")
	provider.Create(t, fresh)
	awaitRefusal(t, fresh, "cordoned")
	provider.Delete(t, pod)
	awaitPod(t, good, pod.UID)
}

// sizes returns a patch of the spec of a ShadowPod with these requests and this image.
func sizes(cpu, image string) string {
	return fmt.Sprintf(`{"spec":{"pod":{"containers":[{"name":"main","image":%q,"resources":{"requests":{"cpu":%q}}}]}}}`, image, cpu)
}

// TestWhatRunsBecomesNothingElse checks that with a cordoned Quota, or without a required Quota, a running pod may
// shrink, and may be recreated unchanged, but must not grow or be replaced, either while it runs or when it is lost.
func TestWhatRunsBecomesNothingElse(t *testing.T) {
	for name, closed := range map[string]func(t *testing.T, q *offloading.Quota){
		"cordoned":    func(t *testing.T, q *offloading.Quota) { provider.Patch(t, q, `{"spec":{"cordoned":true}}`) },
		"nonexistent": func(t *testing.T, q *offloading.Quota) { provider.Delete(t, q) },
	} {
		t.Run(name, func(t *testing.T) {
			consumer := "ravello-" + name
			namespace, q := limited(t, consumer, quantities("cpu", "10"))
			provider.StartManager(t, func(o *controllers.Options) {
				o.RecordAfter, o.Quotas = time.Millisecond, ledger.Options{Required: true}
			})
			shadow := asking(namespace, "web", consumer, "100m")
			provider.Create(t, shadow)
			pod := awaitPod(t, shadow, "")
			running(t, pod)
			awaitPhase(t, shadow, corev1.PodRunning)
			provider.Patch(t, shadow, sizes("90m", "b")) // generation 2: a spec hash is recorded
			awaitPodWith(t, pod, "90m", "b")
			before := awaitSpecHash(t, shadow, "")
			closed(t, q)

			for what, change := range map[string]string{"larger": sizes("2", "b"), "another one": sizes("80m", "c")} {
				provider.Patch(t, shadow, change)
				awaitRefusedChange(t, shadow, map[string]string{"cordoned": "cordoned", "nonexistent": "has no Quota"}[name])
				awaitPodWith(t, pod, "90m", "b")
				provider.Patch(t, shadow, sizes("90m", "b"))
				awaitAdmitted(t, shadow, what)
			}
			provider.Patch(t, shadow, sizes("80m", "b"))
			awaitPodWith(t, pod, "80m", "b")
			awaitAdmitted(t, shadow, "smaller")
			awaitSpecHash(t, shadow, before)

			// A lost pod is recreated with the same content, but not with other content.
			provider.Delete(t, pod)
			again := awaitPod(t, shadow, pod.UID)
			provider.Patch(t, again, `{"metadata":{"finalizers":["example.com/held"]}}`)
			provider.Delete(t, again)
			provider.Patch(t, shadow, sizes("5", "c"))
			provider.Patch(t, again, `{"metadata":{"finalizers":null}}`)
			awaitRefusal(t, shadow, map[string]string{"cordoned": "cordoned", "nonexistent": "has no Quota"}[name])
		})
	}
}

// awaitSpecHash waits until the ShadowPod records a hash of the running pod's spec that differs from before, and
// returns the hash.
func awaitSpecHash(t *testing.T, shadow *unstructured.Unstructured, before string) (hash string) {
	t.Helper()
	controllertest.Eventually(t, "a new hash of the spec", func() error {
		provider.Get(t, shadow, shadow.GetNamespace(), shadow.GetName())
		if hash, _, _ = unstructured.NestedString(shadow.Object, "status", "podSpecHash"); hash == before {
			return fmt.Errorf("it is %q", hash)
		}
		return nil
	})
	return hash
}

func awaitPodWith(t *testing.T, pod *corev1.Pod, cpu, image string) {
	t.Helper()
	controllertest.Eventually(t, "pod "+pod.Name+" with "+cpu+", "+image, func() error {
		provider.Get(t, pod, pod.Namespace, pod.Name)
		main := pod.Spec.Containers[0]
		if main.Resources.Requests.Cpu().String() != cpu || main.Image != image {
			return fmt.Errorf("it has %s, %s", main.Resources.Requests.Cpu(), main.Image)
		}
		return nil
	})
}

func awaitRefusedChange(t *testing.T, shadow *unstructured.Unstructured, words string) {
	t.Helper()
	controllertest.Eventually(t, "the refusal of the change of "+shadow.GetName(), func() error {
		provider.Get(t, shadow, shadow.GetNamespace(), shadow.GetName())
		if status, message := admitted(shadow); status != "False" || !strings.Contains(message, words) || !strings.Contains(message, "the running pod was left unchanged") {
			return fmt.Errorf("the condition is %q: %s", status, message)
		}
		return nil
	})
}

func awaitAdmitted(t *testing.T, shadow *unstructured.Unstructured, what string) {
	t.Helper()
	controllertest.Eventually(t, "the condition to be true again after "+what, func() error {
		provider.Get(t, shadow, shadow.GetNamespace(), shadow.GetName())
		if status, message := admitted(shadow); status != "True" {
			return fmt.Errorf("the condition is %q: %s", status, message)
		}
		return nil
	})
}

// TestRefusedChangesLeaveThePod checks that the pod is not changed, and the reason is reported, if a change does not
// fit into the Quota. Labels are still updated, because no Quota counts them.
func TestRefusedChangesLeaveThePod(t *testing.T) {
	namespace, q := limited(t, "matera", quantities("cpu", "1"))
	provider.StartManager(t)
	shadow := asking(namespace, "web", "matera", "100m")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	running(t, pod)
	provider.Patch(t, shadow, `{"metadata":{"labels":{"tier":"gold"}},"spec":{"pod":{"activeDeadlineSeconds":600,"tolerations":[{"key":"node.kubernetes.io/disk-pressure","operator":"Exists"}],
		"containers":[{"name":"main","image":"b","resources":{"requests":{"cpu":"3"}}}]}}}`)
	awaitRefusedChange(t, shadow, "cpu: requested 3, used 0, limited 1")
	controllertest.Eventually(t, "the label", func() error {
		provider.Get(t, pod, namespace, "web")
		if pod.Labels["tier"] != "gold" {
			return fmt.Errorf("labels are %v", pod.Labels)
		}
		return nil
	})
	if main := pod.Spec.Containers[0]; main.Image != "a" || main.Resources.Requests.Cpu().String() != "100m" || pod.Spec.ActiveDeadlineSeconds != nil || tolerates(pod, "node.kubernetes.io/disk-pressure") {
		t.Errorf("the pod became %+v", pod.Spec)
	}
	if events := provider.Events(t, namespace, "ShadowPod", "web"); len(events) != 1 || !strings.Contains(events[0].Note, "cpu: requested 3, used 0, limited 1") {
		t.Errorf("Events %v, want one that names the resource", events)
	}

	// The Quota is raised, and the ShadowPod is not changed.
	provider.Patch(t, q, `{"spec":{"resources":{"cpu":"4"}}}`)
	awaitPodWith(t, pod, "3", "b")
	awaitAdmitted(t, shadow, "the Quota was raised")
}

// TestRefusedGenerationsAreNotWritten checks that no part of a generation is written if the policy of this cluster does
// not allow the generation: neither its other fields nor a label that is changed later.
func TestRefusedGenerationsAreNotWritten(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	shadow := shadowPod(namespace, "web")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	provider.Patch(t, shadow, `{"metadata":{"labels":{"tier":"gold"},"annotations":{"note":"two"}},"spec":{"pod":{"hostNetwork":true,"activeDeadlineSeconds":600,
		"tolerations":[{"key":"node.kubernetes.io/disk-pressure","operator":"Exists"}],"containers":[{"name":"main","image":"b"}]}}}`)
	awaitRefusedChange(t, shadow, "hostNetwork")
	provider.Patch(t, shadow, `{"metadata":{"labels":{"tier":"silver"}}}`)
	settle(t, namespace)
	provider.Get(t, pod, namespace, "web")
	if pod.Spec.Containers[0].Image != "registry.example/main:1" || pod.Spec.ActiveDeadlineSeconds != nil || tolerates(pod, "node.kubernetes.io/disk-pressure") || pod.Labels["tier"] != "" || pod.Annotations["note"] != "one" {
		t.Errorf("the pod became %+v, %+v", pod.ObjectMeta, pod.Spec)
	}
	provider.Patch(t, shadow, `{"spec":{"pod":{"hostNetwork":false}}}`)
	controllertest.Eventually(t, "the rest, once it is allowed", func() error {
		provider.Get(t, pod, namespace, "web")
		if pod.Spec.Containers[0].Image != "b" || pod.Labels["tier"] != "silver" || pod.Annotations["note"] != "two" || !tolerates(pod, "node.kubernetes.io/disk-pressure") {
			return fmt.Errorf("the pod is %+v, %+v", pod.ObjectMeta, pod.Spec)
		}
		return nil
	})
	awaitAdmitted(t, shadow, "the change")
}

func tolerates(pod *corev1.Pod, key string) bool {
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.Key == key {
			return true
		}
	}
	return false
}

// TestDefaultsOfANamespaceCount checks that the defaults of a LimitRange in this cluster already count before the pod
// is created.
func TestDefaultsOfANamespaceCount(t *testing.T) {
	namespace, _ := limited(t, "lecce", quantities("cpu", "1", "memory", "1Gi"))
	provider.StartManager(t)
	provider.Create(t, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "defaults"}, Spec: corev1.LimitRangeSpec{
		Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: quantities("cpu", "600m")}}}})
	silent := func(name string) *unstructured.Unstructured {
		return set(asking(namespace, name, "lecce", "0"), []any{map[string]any{"name": "main", "image": "a"}}, "spec", "pod", "containers")
	}
	controllertest.Eventually(t, "the defaults", func() error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a"}}}}
		if err := provider.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			return err
		}
		if pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "600m" {
			return fmt.Errorf("there are none")
		}
		return nil
	})
	first, second := silent("first"), silent("second")
	provider.Create(t, first)
	awaitPod(t, first, "")
	provider.Create(t, second)
	awaitRefusal(t, second, "cpu: requested 600m, used 600m, limited 1")
}

// TestDefaultsOfOtherResourcesCount checks that the ephemeral storage that a LimitRange adds counts, even for a pod
// that requests CPU and memory.
func TestDefaultsOfOtherResourcesCount(t *testing.T) {
	namespace, _ := limited(t, "otranto",
		quantities("cpu", "1", "memory", "1Gi", "ephemeral-storage", "1Gi", "limits.ephemeral-storage", "10Gi"))
	provider.StartManager(t)
	defaults := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer,
		Default: quantities("ephemeral-storage", "2Gi"), DefaultRequest: quantities("ephemeral-storage", "600Mi")}
	provider.Create(t, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "defaults"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{defaults}}})
	controllertest.Eventually(t, "the defaults", func() error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "a"}}}}
		if err := provider.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			return err
		}
		if pod.Spec.Containers[0].Resources.Requests.StorageEphemeral().String() != "600Mi" {
			return fmt.Errorf("there are none")
		}
		return nil
	})
	sized := func(name string) *unstructured.Unstructured {
		requests := map[string]any{"cpu": "100m", "memory": "100Mi"}
		container := map[string]any{"name": "main", "image": "a", "resources": map[string]any{"requests": requests}}
		return set(asking(namespace, name, "otranto", "0"), []any{container}, "spec", "pod", "containers")
	}
	first, second := sized("first"), sized("second")
	provider.Create(t, first)
	awaitPod(t, first, "")
	provider.Create(t, second)
	awaitRefusal(t, second, "ephemeral-storage: requested 600Mi, used 600Mi, limited 1Gi")
}
