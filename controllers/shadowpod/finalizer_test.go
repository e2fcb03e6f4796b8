// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/shadowpod"
)

// task returns a ShadowPod whose pod ends on its own.
func task(namespace, name string) *unstructured.Unstructured {
	return set(shadowPod(namespace, name), "Never", "spec", "pod", "restartPolicy")
}

// bind binds the pod to a new node, as a scheduler would, because only a bound pod is deleted with a grace period.
// The node must exist, because Kubernetes' pod garbage collector marks the pods of missing nodes as failed.
func bind(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Namespace + "-" + pod.Name}, Spec: corev1.NodeSpec{Unschedulable: true}}
	provider.Create(t, node)
	t.Cleanup(func() { require.NoError(t, provider.Client.Delete(context.Background(), node)) })
	to := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	require.NoError(t, provider.Client.SubResource("binding").Create(t.Context(), pod, to))
}

// failLongAgo sets the status of a pod whose container has failed long ago.
func failLongAgo(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	provider.PatchStatus(t, pod, `{"status":{"phase":"Failed","containerStatuses":[{"name":"main","image":"i","imageID":"i","ready":false,"restartCount":0,
		"state":{"terminated":{"exitCode":3,"startedAt":"2020-01-01T00:00:00Z","finishedAt":"2020-01-01T00:00:01Z"}}}]}}`)
}

func TestAPodThatFinishedAndWasDeletedWhileNobodyLookedNeverRunsAgain(t *testing.T) {
	namespace := extended(t)
	cases := map[string]struct {
		policy string
		end    func(*testing.T, *corev1.Pod)
		want   corev1.PodPhase
	}{
		"succeeded": {"OnFailure", func(t *testing.T, pod *corev1.Pod) {
			setPhase(t, pod, corev1.PodSucceeded)
			provider.Delete(t, pod)
		}, corev1.PodSucceeded},
		"late": {"Never", func(t *testing.T, pod *corev1.Pod) {
			if err := provider.Client.Delete(t.Context(), pod); err != nil { // deletes the pod with a grace period
				t.Fatal(err)
			}
			setPhase(t, pod, corev1.PodSucceeded)
			provider.Delete(t, pod)
		}, corev1.PodSucceeded},
		"failed": {"Never", func(t *testing.T, pod *corev1.Pod) {
			failLongAgo(t, pod)
			provider.Delete(t, pod)
		}, corev1.PodFailed},
	}
	shadows, pods := map[string]*unstructured.Unstructured{}, map[string]*corev1.Pod{}
	first := provider.StartManager(t)
	for name, tc := range cases {
		shadows[name] = set(task(namespace, name), tc.policy, "spec", "pod", "restartPolicy")
		provider.Create(t, shadows[name])
		pods[name] = awaitPod(t, shadows[name], "")
		bind(t, pods[name])
		setPhase(t, pods[name], corev1.PodRunning)
		awaitPhase(t, shadows[name], corev1.PodRunning)
	}
	first.Stop(t)
	for name, tc := range cases {
		tc.end(t, pods[name])
	}

	second := provider.StartManager(t)
	for name, tc := range cases {
		awaitPhase(t, shadows[name], tc.want)
		provider.AwaitGone(t, pods[name])
	}
	settle(t, namespace)
	for name := range cases {
		if podExists(t, namespace, name) {
			t.Errorf("pod %s was created again", name)
		}
		if writes := second.Writes.About(namespace, name); len(writes) != 2 {
			t.Errorf("writes about %s = %q, want the phase and the release of the pod", name, writes)
		}
	}
}

func TestOnlyPodsThatMayFinishAreHeldAndNoLongerThanNeeded(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	server, job := shadowPod(namespace, "server"), task(namespace, "job")
	provider.Create(t, server)
	provider.Create(t, job)
	if pod := awaitPod(t, server, ""); len(pod.Finalizers) > 0 {
		t.Errorf("finalizers of a pod that is restarted always = %q, want none", pod.Finalizers)
	}
	pod := awaitPod(t, job, "")
	if len(pod.Finalizers) != 1 || pod.Finalizers[0] != shadowpod.FinalPhaseFinalizer {
		t.Errorf("finalizers = %q, want ours", pod.Finalizers)
	}
	setPhase(t, pod, corev1.PodSucceeded)
	controllertest.Eventually(t, "the finished pod to be released", func() error {
		provider.Get(t, pod, namespace, "job")
		if len(pod.Finalizers) > 0 {
			return errors.New("it is held")
		}
		return nil
	})
	awaitPhase(t, job, corev1.PodSucceeded)
	settle(t, namespace)
	if writes := m.Writes.About("PATCH", namespace, "job"); len(writes) != 2 {
		t.Errorf("writes = %q, want the phase and the release", writes)
	}
}

func TestAPodThatMayFinishComesBackWhenItHasNot(t *testing.T) {
	namespace := extended(t)
	first := provider.StartManager(t)
	seen, unseen := task(namespace, "seen"), task(namespace, "unseen")
	provider.Create(t, seen)
	provider.Create(t, unseen)
	one, two := awaitPod(t, seen, ""), awaitPod(t, unseen, "")
	bind(t, one)

	// The pod may still finish during its grace period.
	require.NoError(t, provider.Client.Delete(t.Context(), one))
	settle(t, namespace)
	provider.Get(t, one, namespace, "seen")
	if len(one.Finalizers) == 0 {
		t.Error("the pod was released while it was being stopped")
	}
	setPhase(t, one, corev1.PodFailed)
	provider.Delete(t, one)
	awaitPod(t, seen, one.UID)

	first.Stop(t)
	provider.Delete(t, two)
	provider.StartManager(t)
	awaitPod(t, unseen, two.UID)
}

func TestNothingHangsOnTheFinalizer(t *testing.T) {
	namespace := extended(t)
	first := provider.StartManager(t)
	names := []string{"deleted", "deleted-unseen", "left-in-namespace"}
	shadows, pods := map[string]*unstructured.Unstructured{}, map[string]*corev1.Pod{}
	for _, name := range names {
		shadows[name] = task(namespace, name)
		provider.Create(t, shadows[name])
		pods[name] = awaitPod(t, shadows[name], "")
	}
	provider.Delete(t, shadows["deleted"])
	provider.AwaitGone(t, pods["deleted"])

	first.Stop(t)
	provider.Delete(t, shadows["deleted-unseen"])
	provider.Delete(t, pods["deleted-unseen"])
	second := provider.StartManager(t)
	provider.AwaitGone(t, pods["deleted-unseen"])

	provider.Delete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	// The namespace controller deletes the remaining objects of the namespace when it retries.
	provider.AwaitGone(t, pods["left-in-namespace"])
	if writes := second.Writes.About("PATCH", namespace, "left-in-namespace"); len(writes) != 1 {
		t.Errorf("writes = %q, want the release", writes)
	}
}

// TestAPodThatLostItsLabelAndIsDeletedComesBack checks that a pod that has lost its label, and is therefore not in the
// cache, is still recreated if it is deleted.
func TestAPodThatLostItsLabelAndIsDeletedComesBack(t *testing.T) {
	namespace := extended(t)
	first := provider.StartManager(t)
	shadow := task(namespace, "lost")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	first.Stop(t)
	provider.Patch(t, pod, `{"metadata":{"labels":null,"finalizers":["test.refract.io/hold"]}}`)
	provider.Delete(t, pod)

	provider.StartManager(t)
	settle(t, namespace)
	provider.Patch(t, pod, `{"metadata":{"finalizers":null}}`)
	awaitPod(t, shadow, pod.UID)
}

// TestAReleasedPodThatHasItsFinalizerAgainIsReleasedAgain checks that a finalizer that was already removed is removed
// again if the pod has it after etcd was restored. Otherwise it would block the deletion of the namespace forever.
func TestAReleasedPodThatHasItsFinalizerAgainIsReleasedAgain(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	shadow := task(namespace, "restored")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	bind(t, pod)
	setPhase(t, pod, corev1.PodSucceeded)
	held := func() bool {
		provider.Get(t, pod, namespace, pod.Name)
		return slices.Contains(pod.Finalizers, shadowpod.FinalPhaseFinalizer)
	}
	controllertest.Eventually(t, "the pod to be released", func() error {
		if held() {
			return errors.New("it is held")
		}
		return nil
	})
	provider.Patch(t, pod, `{"metadata":{"finalizers":["`+shadowpod.FinalPhaseFinalizer+`"]}}`)
	require.NoError(t, client.IgnoreNotFound(provider.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0))))
	provider.AwaitGone(t, pod)
}

// TestADeniedReleaseIsReported checks that an Event reports an admission policy that denies the removal of the
// finalizer, because the pod cannot be deleted meanwhile, and that the removal is retried. The policy denies with the
// reason Invalid, with which the API server also rejects an outdated patch.
func TestADeniedReleaseIsReported(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	shadow := task(namespace, "stuck")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	bind(t, pod)
	mend := provider.DenyAs(t, "refract-denies-releases", metav1.StatusReasonInvalid, admissionv1.Update, "", "pods", namespace, func(c client.Client) error {
		return c.Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`)), client.DryRunAll)
	})
	setPhase(t, pod, corev1.PodSucceeded)
	event := provider.AwaitEvent(t, namespace, offloading.ShadowPodKind, "stuck", "PolicyDenied")
	require.Contains(t, event.Note, "releasing pod "+namespace+"/stuck from its finalizer")
	mend()
	controllertest.Eventually(t, "the pod to be released", func() error {
		provider.Get(t, pod, namespace, pod.Name)
		if len(pod.Finalizers) > 0 {
			return errors.New("it is held")
		}
		return nil
	})
	require.NotEmpty(t, m.Writes.Denied())
}
