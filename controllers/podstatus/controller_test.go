// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/testenv"
)

var consumer = controllertest.Cluster{
	ID:      "consumer",
	Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true},
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &consumer)) }

func node(t *testing.T, name string, labels map[string]string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	consumer.Create(t, n)
	return n
}

func ready(t *testing.T, n *corev1.Node, status corev1.ConditionStatus) {
	t.Helper()
	consumer.PatchStatus(t, n, fmt.Sprintf(`{"status":{"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":%q}]}}`, status))
}

func pod(t *testing.T, namespace, name, node string, labels map[string]string) *corev1.Pod {
	t.Helper()
	none := false
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: &none, Containers: []corev1.Container{{Name: "main", Image: "registry.example/main:1"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
	}
	consumer.Create(t, p)
	return p
}

func awaitMark(t *testing.T, p *corev1.Pod, want string) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("pod %s to be marked %q", p.Name, want), func() error {
		consumer.Get(t, p, p.Namespace, p.Name)
		if got := p.Labels[wire.RemoteUnavailableLabel]; got != want {
			return fmt.Errorf("it is marked %q", got)
		}
		return nil
	})
}

func TestOffloadedPodsAreMarkedWhileTheirNodeIsNotReady(t *testing.T) {
	namespace := consumer.Namespace(t)
	virtual := map[string]string{wire.TypeLabel: wire.VirtualNodeType}
	offloaded := map[string]string{wire.OffloadedPodLabel: "true"}
	milan, turin, worker := node(t, "milan", virtual), node(t, "turin", virtual), node(t, "worker", nil)
	there, waiting := pod(t, namespace, "there", "milan", offloaded), pod(t, namespace, "waiting", "milan", nil)
	elsewhere, here := pod(t, namespace, "elsewhere", "turin", offloaded), pod(t, namespace, "here", "worker", offloaded)
	m := consumer.StartManager(t)
	ready(t, turin, corev1.ConditionTrue)
	ready(t, worker, corev1.ConditionFalse)
	ready(t, milan, corev1.ConditionTrue)
	ready(t, milan, corev1.ConditionUnknown)
	awaitMark(t, there, "true")
	ready(t, milan, corev1.ConditionFalse) // no news for its pods
	ready(t, turin, corev1.ConditionFalse)
	awaitMark(t, elsewhere, "true")
	for _, p := range []*corev1.Pod{waiting, here} {
		consumer.Get(t, p, namespace, p.Name)
		if _, marked := p.Labels[wire.RemoteUnavailableLabel]; marked {
			t.Errorf("pod %s is marked", p.Name)
		}
	}

	// A restart finds things as they are.
	m.Stop(t)
	m = consumer.StartManager(t)
	ready(t, milan, corev1.ConditionTrue)
	awaitMark(t, there, "")
	if there.Labels[wire.OffloadedPodLabel] != "true" {
		t.Errorf("labels = %v, want the others kept", there.Labels)
	}
	awaitMark(t, elsewhere, "true")
	if writes := m.Writes.About("PATCH", namespace, "/pods/"); len(writes) != 1 {
		t.Errorf("writes = %q, want one", writes)
	}
}
