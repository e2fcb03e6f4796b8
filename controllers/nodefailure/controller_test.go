// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodefailure_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/nodefailure"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

// provider has no scheduler and no kubelets, so a deleted pod that is bound to a node stays Terminating.
var provider = controllertest.Cluster{ID: "provider", Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider)) }

// node creates a node and returns a function that sets its readiness.
func node(t *testing.T, name string) (ready func(corev1.ConditionStatus)) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	provider.Create(t, n)
	return func(status corev1.ConditionStatus) {
		provider.PatchStatus(t, n, fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}}`, status, time.Now().UTC().Format(time.RFC3339)))
	}
}

// offloaded creates a ShadowPod and returns its pod, bound to a node.
func offloaded(t *testing.T, namespace, name, node string, labels map[string]string) *corev1.Pod {
	t.Helper()
	shadow := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"pod": map[string]any{
		"containers": []any{map[string]any{"name": "main", "image": "registry.example/main:1"}}, "terminationGracePeriodSeconds": int64(1),
	}}}}
	shadow.SetGroupVersionKind(offloading.GroupVersion.WithKind(offloading.ShadowPodKind))
	shadow.SetNamespace(namespace)
	shadow.SetName(name)
	shadow.SetLabels(map[string]string{wire.OriginLabel: "consumer", wire.DestinationLabel: "provider"})
	for key, value := range labels {
		shadow.SetLabels(map[string]string{wire.OriginLabel: "consumer", wire.DestinationLabel: "provider", key: value})
	}
	provider.Create(t, shadow)
	return bind(t, namespace, name, node)
}

func bind(t *testing.T, namespace, name, node string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	controllertest.Eventually(t, "pod "+name, func() error {
		return provider.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, pod)
	})
	require.NoError(t, provider.Client.SubResource("binding").Create(t.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}))
	return pod
}

func start(t *testing.T) {
	t.Helper()
	manager := rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, provider.Grant(t.Context(), manager.NodeFailure()...))
	provider.StartManager(t, func(o *controllers.Options) {
		o.NodeFailure = nodefailure.Options{Enabled: true, Workers: 1, Delay: 3 * time.Second}
	})
}

func awaitOther(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	controllertest.Eventually(t, "another pod "+pod.Name, func() error {
		now := &corev1.Pod{}
		if err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		if now.UID == pod.UID {
			return fmt.Errorf("it is the same, Terminating since %v", now.DeletionTimestamp)
		}
		return nil
	})
}

func TestPodsOfAFailedNodeAreMadeAgain(t *testing.T) {
	namespace := provider.Extended(t, "consumer")
	start(t)
	ready := node(t, "worker-1")
	ready(corev1.ConditionTrue)
	pod := offloaded(t, namespace, "web", "worker-1", nil)
	single := offloaded(t, namespace, "db-0", "worker-1", map[string]string{appsv1.StatefulSetPodNameLabel: "db-0"})
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foreign"}, Spec: corev1.PodSpec{
		NodeName: "worker-1", TerminationGracePeriodSeconds: single.Spec.TerminationGracePeriodSeconds, Containers: []corev1.Container{{Name: "main", Image: "registry.example/main:1"}}}}
	provider.Create(t, foreign)
	for _, p := range []*corev1.Pod{pod, single, foreign} {
		require.NoError(t, provider.Client.Delete(t.Context(), p))
	}
	// This pod is deleted last. When it is gone, all other pods have been processed.
	node(t, "worker-2")(corev1.ConditionFalse)
	last := offloaded(t, namespace, "last", "worker-2", nil)
	require.NoError(t, provider.Client.Delete(t.Context(), last))
	awaitOther(t, last)
	for _, p := range []*corev1.Pod{pod, single, foreign} {
		before := p.UID
		if provider.Get(t, p, namespace, p.Name); p.UID != before || p.DeletionTimestamp == nil {
			t.Errorf("pod %s of a node that is ready is %v", p.Name, p.ObjectMeta)
		}
	}
	ready(corev1.ConditionUnknown)
	failed := time.Now()
	awaitOther(t, pod)
	if took := time.Since(failed); took < 2*time.Second {
		t.Errorf("the pod was deleted by force after %s, before the delay", took)
	}
	provider.AwaitEvent(t, namespace, "Pod", "web", "ForceDeletedPod")
	for _, p := range []*corev1.Pod{single, foreign} {
		before := p.UID
		if provider.Get(t, p, namespace, p.Name); p.UID != before {
			t.Errorf("pod %s, of which there must not be two or which is not ours, was deleted by force", p.Name)
		}
	}
}
