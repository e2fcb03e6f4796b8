// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

func TestMakesThePodVerbatim(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	shadow := shadowPod(namespace, "verbatim")
	set(shadow, []any{map[string]any{"ip": "10.0.0.9", "hostnames": []any{"kubernetes.default"}}}, "spec", "pod", "hostAliases")
	set(shadow, map[string]any{"name": "linux"}, "spec", "pod", "os")
	provider.Create(t, shadow)

	pod := awaitPod(t, shadow, "")
	if !metav1.IsControlledBy(pod, shadow) {
		t.Errorf("owners = %v, want the ShadowPod as controller", pod.OwnerReferences)
	}
	if pod.Labels[wire.ManagedByLabel] != wire.ManagedByShadowPod || pod.Labels["app"] != "verbatim" || pod.Annotations["note"] != "one" {
		t.Errorf("labels = %v, annotations = %v", pod.Labels, pod.Annotations)
	}
	if pod.Spec.HostAliases[0].IP != "10.0.0.9" || pod.Spec.OS == nil || pod.Spec.OS.Name != corev1.Linux {
		t.Errorf("hostAliases = %v, os = %v, want them as in the ShadowPod", pod.Spec.HostAliases, pod.Spec.OS)
	}
}

func TestAPodThatRunsCostsTwoWrites(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	shadow := shadowPod(namespace, "budget")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	provider.PatchStatus(t, pod, `{"status":{"conditions":[{"type":"PodScheduled","status":"True"}]}}`)
	setPhase(t, pod, corev1.PodRunning)
	awaitPhase(t, shadow, corev1.PodRunning)
	settle(t, namespace) // settle creates the second pod

	creations, others := m.Writes.About("POST", namespace, "/pods"), m.Writes.About(namespace, "budget")
	if len(creations) != 2 || len(others) != 1 {
		t.Errorf("writes = %q and %q, want the pod's creation and the phase Running", creations, others)
	}
	if events := provider.Events(t, namespace, "ShadowPod", "budget"); len(events) != 0 {
		t.Errorf("events = %v, want none about what everybody expects", events)
	}
}

func TestARestartWritesNothing(t *testing.T) {
	namespace := extended(t)
	first := provider.StartManager(t)
	shadow := shadowPod(namespace, "restart")
	provider.Create(t, shadow)
	setPhase(t, awaitPod(t, shadow, ""), corev1.PodRunning)
	awaitPhase(t, shadow, corev1.PodRunning)
	first.Stop(t)

	second := provider.StartManager(t)
	settle(t, namespace)
	if writes := second.Writes.About(namespace); len(writes) != 1 {
		t.Errorf("writes = %q, want none but the creation of the pod that is new", writes)
	}
}

func TestADeletedPodComesBack(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	shadow := shadowPod(namespace, "lost")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	setPhase(t, pod, corev1.PodRunning)
	awaitPhase(t, shadow, corev1.PodRunning)

	provider.Delete(t, pod)
	awaitPod(t, shadow, pod.UID)
	provider.AwaitEvent(t, namespace, "ShadowPod", "lost", wire.CreatedPodReason)
}

func TestAPodDeletedWhileNobodyLookedComesBack(t *testing.T) {
	namespace := extended(t)
	first := provider.StartManager(t)
	shadow := shadowPod(namespace, "unseen")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	first.Stop(t)
	provider.Delete(t, pod)

	provider.StartManager(t)
	awaitPod(t, shadow, pod.UID)
}

// TestAPodStoppedByItsDeletionComesBack checks that a pod that was deleted is recreated although it has a terminal
// phase. A kubelet also sets such a phase for a pod that it stops because the pod is deleted. The pod has not finished
// in this case.
func TestAPodStoppedByItsDeletionComesBack(t *testing.T) {
	for _, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded} {
		t.Run(string(phase), func(t *testing.T) {
			namespace := extended(t)
			provider.StartManager(t)
			shadow := shadowPod(namespace, "drained")
			provider.Create(t, shadow)
			pod := awaitPod(t, shadow, "")
			provider.Patch(t, pod, `{"metadata":{"finalizers":["test.refract.io/hold"]}}`)
			setPhase(t, pod, corev1.PodRunning)
			awaitPhase(t, shadow, corev1.PodRunning)

			provider.Delete(t, pod)
			setPhase(t, pod, phase)
			provider.Patch(t, pod, `{"metadata":{"finalizers":null}}`)
			awaitPod(t, shadow, pod.UID)
		})
	}
}

func TestAFinishedPodNeverRunsAgain(t *testing.T) {
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		t.Run(string(phase), func(t *testing.T) {
			namespace := extended(t)
			first := provider.StartManager(t)
			shadow := shadowPod(namespace, "finished")
			provider.Create(t, shadow)
			pod := awaitPod(t, shadow, "")
			setPhase(t, pod, phase)
			provider.Delete(t, pod) // the phase might not be recorded yet
			awaitPhase(t, shadow, phase)
			settle(t, namespace)
			if podExists(t, namespace, "finished") {
				t.Error("the pod was created again")
			}
			first.Stop(t)

			second := provider.StartManager(t)
			settle(t, namespace)
			if writes := second.Writes.About(namespace, "finished"); len(writes) > 0 {
				t.Errorf("writes after a restart = %q, want none", writes)
			}
		})
	}
}

func TestAForeignPodIsLeftAlone(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	theirs := foreignPod(namespace, "taken")
	provider.Create(t, theirs)
	before := theirs.ResourceVersion
	shadow := shadowPod(namespace, "taken")
	provider.Create(t, shadow)

	provider.AwaitEvent(t, namespace, "ShadowPod", "taken", wire.FailedCreatePodReason)
	settle(t, namespace)
	provider.Get(t, theirs, namespace, "taken")
	if theirs.ResourceVersion != before {
		t.Errorf("the foreign pod was written to: %v", m.Writes.About(namespace, "taken"))
	}
	provider.Delete(t, theirs)
	if pod := awaitPod(t, shadow, theirs.UID); !metav1.IsControlledBy(pod, shadow) {
		t.Errorf("owners = %v, want the ShadowPod as controller", pod.OwnerReferences)
	}
	if events := provider.Events(t, namespace, "ShadowPod", "taken"); len(events) != 1 {
		t.Errorf("%d events, want one for all attempts", len(events))
	}
}

func TestAForeignPodWithOurLabelIsLeftAlone(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	theirs := foreignPod(namespace, "imposter")
	theirs.Labels[wire.ManagedByLabel] = wire.ManagedByShadowPod
	provider.Create(t, theirs)
	provider.Create(t, shadowPod(namespace, "imposter"))

	provider.AwaitEvent(t, namespace, "ShadowPod", "imposter", wire.FailedCreatePodReason)
	if writes := m.Writes.About("PATCH", namespace, "/pods/imposter"); len(writes) > 0 {
		t.Errorf("writes = %q, want none", writes)
	}
}

// TestASuccessorWaitsForThePodOfItsPredecessor checks that the new pod waits until the old one is gone if the consumer
// deletes a pod of a StatefulSet and creates the next one at once.
func TestASuccessorWaitsForThePodOfItsPredecessor(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	former := shadowPod(namespace, "web-0")
	provider.Create(t, former)
	pod := awaitPod(t, former, "")
	provider.Patch(t, pod, `{"metadata":{"finalizers":["test.refract.io/hold"]}}`)
	provider.Delete(t, former)
	provider.AwaitGone(t, former)
	next := shadowPod(namespace, "web-0")
	provider.Create(t, next)
	settle(t, namespace)
	if events := provider.Events(t, namespace, "ShadowPod", "web-0"); len(events) > 0 {
		t.Errorf("events = %v, want none: nothing is wrong", events)
	}
	controllertest.Eventually(t, "the former pod to be deleted", func() error {
		provider.Get(t, pod, namespace, "web-0")
		if pod.DeletionTimestamp == nil {
			return errors.New("it is not")
		}
		return nil
	})
	provider.Patch(t, pod, `{"metadata":{"finalizers":null}}`)
	if successor := awaitPod(t, next, pod.UID); !metav1.IsControlledBy(successor, next) {
		t.Errorf("owners = %v, want the new ShadowPod", successor.OwnerReferences)
	}
}

func TestWithoutAnOriginNothingIsMade(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	shadow := shadowPod(namespace, "orphan")
	shadow.SetLabels(nil)
	provider.Create(t, shadow)
	provider.AwaitEvent(t, namespace, "ShadowPod", "orphan", "MissingOrigin")
	if podExists(t, namespace, "orphan") {
		t.Error("the pod was created")
	}
	provider.Patch(t, shadow, fmt.Sprintf(`{"metadata":{"labels":{%q:"consumer"}}}`, wire.OriginLabel))
	awaitPod(t, shadow, "")
}

func TestAMalformedShadowPodStopsNothingElse(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	for name, spec := range map[string]any{
		"no-containers": map[string]any{"containers": []any{}},
		"wrong-type":    map[string]any{"containers": "none"},
	} {
		shadow := set(shadowPod(namespace, name), spec, "spec", "pod")
		provider.Create(t, shadow)
		reason := wire.FailedCreatePodReason
		if name == "wrong-type" {
			reason = "RefusedByProvider" // a spec that cannot be decoded is refused
		}
		provider.AwaitEvent(t, namespace, "ShadowPod", name, reason)
	}
	settle(t, namespace)
}

// TestAPodThatIsForbiddenForAMomentIsNoNews checks that nothing is reported about pods that arrive in a new namespace
// before its service account exists.
func TestAPodThatIsForbiddenForAMomentIsNoNews(t *testing.T) {
	provider.StartManager(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "new-", Labels: map[string]string{wire.RemoteClusterIDLabel: "consumer"},
		Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: "liqo-tenant-consumer/provider"},
	}}
	provider.Create(t, namespace)
	shadow := shadowPod(namespace.Name, "early")
	provider.Create(t, shadow)
	awaitPod(t, shadow, "")
	if events := provider.Events(t, namespace.Name, "ShadowPod", "early"); len(events) > 0 {
		t.Errorf("events = %v, want none", events)
	}
}

func TestAPodThatStaysForbiddenIsReported(t *testing.T) {
	namespace := extended(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	provider.Create(t, quota)
	provider.StartManager(t)
	shadow := shadowPod(namespace, "greedy")
	provider.Create(t, shadow)
	event := provider.AwaitEvent(t, namespace, "ShadowPod", "greedy", wire.FailedCreatePodReason)
	if !strings.Contains(event.Note, "quota") {
		t.Errorf("note = %q, want the quota in it", event.Note)
	}
	provider.Delete(t, quota)
	awaitPod(t, shadow, "")
}

// TestTheFirstPhaseOfAYoungPodWaits checks that only final phases are recorded at once.
func TestTheFirstPhaseOfAYoungPodWaits(t *testing.T) {
	namespace := extended(t)
	manager := provider.StartManager(t, func(o *controllers.Options) { o.RecordAfter = time.Hour })
	running, finished := shadowPod(namespace, "running"), shadowPod(namespace, "finished")
	set(finished, "Never", "spec", "pod", "restartPolicy")
	provider.Create(t, running)
	provider.Create(t, finished)
	setPhase(t, awaitPod(t, running, ""), corev1.PodRunning)
	setPhase(t, awaitPod(t, finished, ""), corev1.PodRunning)
	setPhase(t, awaitPod(t, finished, ""), corev1.PodSucceeded)
	awaitPhase(t, finished, corev1.PodSucceeded)
	awaitPhase(t, running, "")
	manager.Stop(t)

	provider.StartManager(t, func(o *controllers.Options) { o.RecordAfter = 2 * time.Second })
	awaitPhase(t, running, corev1.PodRunning)
}
