// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/podstatus"
	"github.com/refract-project/refract/test/support/testenv"
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
	ready(t, milan, corev1.ConditionFalse) // this changes the node's status in a way that does not affect pods
	ready(t, turin, corev1.ConditionFalse)
	awaitMark(t, elsewhere, "true")
	for _, p := range []*corev1.Pod{waiting, here} {
		consumer.Get(t, p, namespace, p.Name)
		if _, marked := p.Labels[wire.RemoteUnavailableLabel]; marked {
			t.Errorf("pod %s is marked", p.Name)
		}
	}

	// A restart of the controller must not change anything.
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

func phase(t *testing.T, p *corev1.Pod, now corev1.PodPhase) {
	t.Helper()
	consumer.PatchStatus(t, p, fmt.Sprintf(`{"status":{"phase":%q}}`, now))
}

// TestFinishedPodsAreNotMarked checks that finished pods get no label, and that an existing label is removed from them.
func TestFinishedPodsAreNotMarked(t *testing.T) {
	namespace := consumer.Namespace(t)
	offloaded := map[string]string{wire.OffloadedPodLabel: "true"}
	bari := node(t, "bari", map[string]string{wire.TypeLabel: wire.VirtualNodeType})
	done, failed := pod(t, namespace, "done", "bari", offloaded), pod(t, namespace, "failed", "bari", offloaded)
	phase(t, done, corev1.PodSucceeded)
	phase(t, failed, corev1.PodFailed)
	running := pod(t, namespace, "running", "bari", offloaded)
	m := consumer.StartManager(t)
	ready(t, bari, corev1.ConditionFalse)
	awaitMark(t, running, "true")
	phase(t, running, corev1.PodSucceeded)
	ready(t, bari, corev1.ConditionTrue)
	awaitMark(t, running, "")
	for _, p := range []*corev1.Pod{done, failed} {
		if writes := m.Writes.About("PATCH", namespace, "/pods/"+p.Name); len(writes) > 0 {
			t.Errorf("writes = %q, want none to pod %s", writes, p.Name)
		}
	}
}

// counted is a reader that records how many pods each list contains.
type counted struct {
	client.Reader
	pages []int
}

func (c *counted) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := c.Reader.List(ctx, list, options...)
	c.pages = append(c.pages, meta.LenList(list))
	return err
}

// TestAPodThatIsRefusedHoldsNoOtherUp checks that a pod that cannot be written is reported, and does not delay other
// pods or the next pages.
func TestAPodThatIsRefusedHoldsNoOtherUp(t *testing.T) {
	namespace := consumer.Namespace(t)
	offloaded := map[string]string{wire.OffloadedPodLabel: "true"}
	lodi := node(t, "lodi", map[string]string{wire.TypeLabel: wire.VirtualNodeType})
	ready(t, lodi, corev1.ConditionFalse)
	var pods []*corev1.Pod
	for i := range 5 {
		pods = append(pods, pod(t, namespace, fmt.Sprintf("pod-%d", i), "lodi", offloaded))
	}
	refuse(t, pods[0])

	live := &counted{Reader: consumer.Client}
	c := podstatus.NewController(consumer.Client, live, podstatus.Options{Page: 2})
	_, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "lodi"}})
	if err == nil || !strings.Contains(err.Error(), "labelling pod "+namespace+"/pod-0") || strings.Contains(err.Error(), "pod-1") {
		t.Errorf("error = %v, want one about pod-0", err)
	}
	if want := []int{2, 2, 1}; !slices.Equal(live.pages, want) {
		t.Errorf("pages of %v pods, want %v", live.pages, want)
	}
	for _, p := range pods[1:] {
		if consumer.Get(t, p, namespace, p.Name); p.Labels[wire.RemoteUnavailableLabel] != "true" {
			t.Errorf("pod %s is not marked", p.Name)
		}
	}
}

// refuse makes the API server reject every change to a pod.
func refuse(t *testing.T, p *corev1.Pod) {
	t.Helper()
	name := p.Namespace + "-" + p.Name
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("request.namespace != %q || request.name != %q", p.Namespace, p.Name)}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	for _, object := range []client.Object{policy, binding} {
		consumer.Create(t, object)
		t.Cleanup(func() {
			assert.NoErrorf(t, consumer.Client.Delete(context.WithoutCancel(t.Context()), object), "deleting %s", object.GetName())
		})
	}
	controllertest.Eventually(t, "the API server to refuse changes", func() error {
		change := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"true"}}}`))
		if err := consumer.Client.Patch(t.Context(), p.DeepCopy(), change, client.DryRunAll); err == nil {
			return fmt.Errorf("it takes them")
		}
		return nil
	})
}
