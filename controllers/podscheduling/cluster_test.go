// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podscheduling_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/lab"
	"github.com/refract-project/refract/test/support/testenv"
)

// home is a joined consumer with a scheduler, a virtual kubelet and the webhook, each of which runs as a process.
type home struct {
	*lab.Lab
	client kubernetes.Interface
	// warnings records the warnings in the API server's responses.
	warnings *warnings
}

type warnings struct {
	mu   sync.Mutex
	said []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := strings.Join(w.said, "\n")
	w.said = nil
	return said
}

func TestPodsOfExtendedNamespaces(t *testing.T) {
	testenv.NeedControlPlane(t)
	l, err := lab.Up(t.Context(), lab.Options{Log: t.Logf})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, l.Down())
	})
	h := &home{Lab: l, warnings: &warnings{}}
	config := l.Consumer.Config()
	config.WarningHandler = h.warnings
	h.client, err = kubernetes.NewForConfig(rest.CopyConfig(config))
	require.NoError(t, err)
	require.NoError(t, l.StartAll(t.Context()))
	require.NoError(t, l.AwaitNodeReady(t.Context()))
	h.namespace(t, "plain", nil)
	h.extend(t, "remote", "--pod-offloading-strategy=Remote")
	t.Run("Remote", h.remote)
	t.Run("Local", h.local)
	t.Run("a DaemonSet", h.daemonSet)
	t.Run("the runtime class", h.runtimeClass)
	t.Run("a namespace that is not offloaded", h.unrelated)
	t.Run("namespaces that are invalid", h.malformed)
	t.Run("the authority is renewed", h.renewal)
	t.Run("the webhook is down", h.outage)
}

// remote checks that pods run on the virtual node even if users specify neither a toleration nor an affinity.
func (h *home) remote(t *testing.T) {
	pod := h.run(t, "remote", newPod())
	if pod.Spec.NodeName != lab.NodeName {
		t.Errorf("the pod runs on %s, want the virtual node", pod.Spec.NodeName)
	}
	h.replaceTolerations(t, pod)
	local := h.run(t, "plain", newPod()).Spec.NodeName
	pinned := newPod()
	pinned.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{local}},
		}}},
	}}}
	created, err := h.client.CoreV1().Pods("remote").Create(t.Context(), pinned, metav1.CreateOptions{})
	require.NoError(t, err)
	h.await(t, "the scheduler to find no node for a pod that wants another", func(ctx context.Context) (string, error) {
		now, err := h.client.CoreV1().Pods("remote").Get(ctx, created.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if now.Spec.NodeName != "" {
			t.Fatalf("it runs on %s", now.Spec.NodeName)
		}
		for _, condition := range now.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
				return "", nil
			}
		}
		return "it was not looked at", nil
	})
}

// replaceTolerations replaces the tolerations of a running pod in the same way as `kubectl replace` with a manifest
// that contains only the author's tolerations.
func (h *home) replaceTolerations(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod = pod.DeepCopy()
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	updated, err := h.client.CoreV1().Pods(pod.Namespace).Update(t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.True(t, tolerates(updated), "the pod tolerates %v", updated.Spec.Tolerations)
	updated.Spec.Tolerations = nil
	_, err = h.client.CoreV1().Pods(pod.Namespace).Update(t.Context(), updated, metav1.UpdateOptions{})
	require.True(t, apierrors.IsInvalid(err), "tolerations of users cannot be removed: %v", err)
}

func (h *home) local(t *testing.T) {
	h.namespace(t, "local", nil)
	_, err := h.Refractctl(t.Context(), "offload", "namespace", "local", "--context", lab.ConsumerID, "--pod-offloading-strategy=Local")
	require.NoError(t, err)
	if pod := h.run(t, "local", newPod()); pod.Spec.NodeName == lab.NodeName || tolerates(pod) || pod.Spec.Affinity != nil {
		t.Errorf("the pod runs on %s with affinity %v, tolerations %v", pod.Spec.NodeName, pod.Spec.Affinity, pod.Spec.Tolerations)
	}
}

// daemonSet checks the pods of a DaemonSet. The DaemonSet controller determines the node of a pod from the matchFields
// of its affinity. Without these, it would keep replacing the pod.
func (h *home) daemonSet(t *testing.T) {
	h.extend(t, "both", "--selector="+wire.RemoteClusterIDLabel+"="+lab.ProviderID)
	pod := newPod()
	pod.Labels = map[string]string{"app": "agent"}
	_, err := h.client.AppsV1().DaemonSets("both").Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	h.await(t, "the DaemonSet to be available", func(ctx context.Context) (string, error) {
		set, err := h.client.AppsV1().DaemonSets("both").Get(ctx, "agent", metav1.GetOptions{})
		if err == nil && (set.Status.ObservedGeneration == 0 || set.Status.DesiredNumberScheduled != 1 || set.Status.NumberAvailable != 1) {
			return fmt.Sprintf("its status is %+v", set.Status), nil
		}
		return "", err
	})
	pods, err := h.client.CoreV1().Pods("both").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("pods = %v, error = %v, want one", pods, err)
	}
	for i, term := range pods.Items[0].Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchFields) != 1 || len(term.MatchExpressions) != 1 {
			t.Errorf("term %d is %+v, want its node and one of ours", i, term)
		}
	}
}

// runtimeClass checks that a pod with the runtime class is scheduled to a virtual node because of the class, and that
// the webhook does not change it.
func (h *home) runtimeClass(t *testing.T) {
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: wire.RuntimeClassName}, Handler: wire.RuntimeClassName, Scheduling: &nodev1.Scheduling{
		NodeSelector: map[string]string{wire.TypeLabel: wire.VirtualNodeType},
		Tolerations:  []corev1.Toleration{{Key: wire.VirtualNodeTaint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
	}}
	other := class.DeepCopy()
	other.Name, other.Scheduling = "other", nil
	for _, c := range []*nodev1.RuntimeClass{class, other} {
		_, err := h.client.NodeV1().RuntimeClasses().Create(t.Context(), c, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for name, changed := range map[string]bool{class.Name: false, other.Name: true} {
		pod := newPod()
		pod.Spec.RuntimeClassName = &name
		if got := h.ask(t, "remote", pod); (got.Spec.Affinity != nil) != changed || !tolerates(got) {
			t.Errorf("runtime class %s: affinity %v, tolerations %v", name, got.Spec.Affinity, got.Spec.Tolerations)
		}
	}
}

func (h *home) unrelated(t *testing.T) {
	pod := h.run(t, "plain", newPod())
	if pod.Spec.NodeName == lab.NodeName || tolerates(pod) || pod.Spec.Affinity != nil {
		t.Errorf("the pod runs on %s with affinity %v, tolerations %v", pod.Spec.NodeName, pod.Spec.Affinity, pod.Spec.Tolerations)
	}
}

func (h *home) malformed(t *testing.T) {
	extended := map[string]string{wire.SchedulingEnabledLabel: "true"}
	h.namespace(t, "missing", extended)
	h.namespace(t, "wrong", extended)
	h.offloading(t, "wrong", map[string]any{"clusterSelector": map[string]any{"nodeSelectorTerms": []any{
		map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Is"}}},
	}}})
	for namespace, want := range map[string]string{
		"missing": "refractctl offload namespace missing",
		"wrong":   "correct spec.clusterSelector: nodeSelectorTerms[0].matchExpressions[0].operator",
	} {
		h.await(t, "the warning about namespace "+namespace, func(context.Context) (string, error) {
			h.warnings.take()
			pod := h.ask(t, namespace, newPod())
			if tolerates(pod) || pod.Spec.Affinity != nil {
				t.Fatalf("the pod of namespace %s was changed", namespace)
			}
			if said := h.warnings.take(); !strings.Contains(said, want) {
				return fmt.Sprintf("the API server said %q", said), nil
			}
			return "", nil
		})
	}
}

// renewal empties the Secret of the webhook. A new certificate authority must be created, as after an expiry, while the
// process and the pods continue to run.
func (h *home) renewal(t *testing.T) {
	pid := h.ConsumerManager().Pid()
	h.setPolicy(t, admissionregistrationv1.Fail)
	defer h.setPolicy(t, admissionregistrationv1.Ignore)
	before := h.configuration(t).Webhooks[0].ClientConfig.CABundle
	_, err := h.client.CoreV1().Secrets(lab.SystemNamespace).Patch(t.Context(), rbac.WebhookName, types.MergePatchType, []byte(`{"data":null}`), metav1.PatchOptions{})
	require.NoError(t, err)
	h.await(t, "another authority to be in the webhook configuration", func(context.Context) (string, error) {
		if now := h.configuration(t).Webhooks[0].ClientConfig.CABundle; len(now) == 0 || string(now) == string(before) {
			return "it is the same", nil
		}
		return "", nil
	})
	h.awaitWebhook(t)
	if h.ConsumerManager().Pid() != pid || h.ConsumerManager().Failure() != nil {
		t.Errorf("the controller manager was started again: %v", h.ConsumerManager().Failure())
	}
}

func (h *home) outage(t *testing.T) {
	h.KillConsumerManager()
	if pod := h.ask(t, "remote", newPod()); tolerates(pod) || pod.Spec.Affinity != nil {
		t.Errorf("somebody changed the pod: %+v", pod.Spec)
	}
	h.setPolicy(t, admissionregistrationv1.Fail)
	h.await(t, "the API server to refuse pods of offloaded namespaces", func(ctx context.Context) (string, error) {
		if _, err := h.tryAsk(ctx, "remote", newPod()); err == nil || !strings.Contains(err.Error(), "pods.scheduling.refract.io") {
			return fmt.Sprintf("it says %v", err), nil
		}
		return "", nil
	})
	_, err := h.client.CoreV1().Namespaces().Patch(t.Context(), lab.SystemNamespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+wire.SchedulingEnabledLabel+`":"true"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	for _, namespace := range []string{"plain", "local", lab.SystemNamespace} {
		h.ask(t, namespace, newPod())
	}
	require.NoError(t, h.StartConsumerManager(t.Context()))
	h.awaitWebhook(t)
}

// awaitWebhook waits until the webhook changes pods in an offloaded namespace again.
func (h *home) awaitWebhook(t *testing.T) {
	t.Helper()
	h.await(t, "pods to be changed again", func(ctx context.Context) (string, error) {
		pod, err := h.tryAsk(ctx, "remote", newPod())
		if err != nil {
			return err.Error(), nil
		}
		if !tolerates(pod) {
			return "it was not", nil
		}
		return "", nil
	})
}

func (h *home) configuration(t *testing.T) *admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	configuration, err := h.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), rbac.WebhookName, metav1.GetOptions{})
	require.NoError(t, err)
	return configuration
}

func (h *home) setPolicy(t *testing.T, policy admissionregistrationv1.FailurePolicyType) {
	t.Helper()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/webhooks/0/failurePolicy","value":%q}]`, policy)
	_, err := h.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(t.Context(), rbac.WebhookName, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

func newPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
}

func tolerates(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == wire.VirtualNodeTaint })
}

// run creates the pod and waits until it is running.
func (h *home) run(t *testing.T, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod, err := h.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	h.await(t, "pod "+pod.Name+" to run", func(ctx context.Context) (string, error) {
		if pod, err = h.client.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
			return "", err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("its status is %+v", pod.Status), nil
		}
		return "", nil
	})
	return pod
}

// ask returns the pod as the API server would store it, without creating it.
func (h *home) ask(t *testing.T, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod, err := h.tryAsk(t.Context(), namespace, pod)
	require.NoError(t, err)
	return pod
}

func (h *home) tryAsk(ctx context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	return h.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// extend creates a namespace and offloads it. It waits until the namespace has the offloading label.
func (h *home) extend(t *testing.T, name string, flags ...string) {
	t.Helper()
	h.namespace(t, name, nil)
	_, err := h.Refractctl(t.Context(), append([]string{"offload", "namespace", name, "--context", lab.ConsumerID}, flags...)...)
	require.NoError(t, err)
	h.await(t, "pods of namespace "+name+" to be let onto virtual nodes", func(context.Context) (string, error) {
		if !tolerates(h.ask(t, name, newPod())) {
			return "they are not", nil
		}
		return "", nil
	})
}

func (h *home) namespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	_, err := h.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	require.NoError(t, err)
	h.await(t, "the service account of namespace "+name, func(ctx context.Context) (string, error) {
		if _, err := h.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
}

func (h *home) offloading(t *testing.T, namespace string, spec map[string]any) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": offloading.GroupVersion.String(), "kind": offloading.NamespaceOffloadingKind,
		"metadata": map[string]any{"name": offloading.NamespaceOffloadingName}, "spec": spec,
	}}
	_, err := h.Consumer.Dynamic.Resource(offloading.NamespaceOffloadingGVR).Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
}

func (h *home) await(t *testing.T, what string, condition func(context.Context) (string, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(t, h.Wait(ctx, what, condition))
}
