// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/test/support/testenv"
)

// provider has no scheduler, no nodes, no garbage collector, and no controller that deletes the pods of missing nodes:
// the tests control the state of pods.
var provider = controllertest.Cluster{
	ID: "provider",
	Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true,
		// HostnameOverride is disabled, to simulate a provider whose Kubernetes version has no spec.hostnameOverride.
		ExtraAPIServerArgs:         []string{"--feature-gates=HostnameOverride=false"},
		ExtraControllerManagerArgs: []string{"--controllers=*,-pod-garbage-collector-controller,-garbage-collector-controller"}},
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider)) }

// extended creates a namespace that the consumer has offloaded to this cluster.
func extended(t *testing.T) string {
	t.Helper()
	return provider.Extended(t, "consumer")
}

// shadowPod returns a ShadowPod as a virtual kubelet creates it.
func shadowPod(namespace, name string) *unstructured.Unstructured {
	shadow := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"pod": map[string]any{
			"containers":    []any{map[string]any{"name": "main", "image": "registry.example/main:1"}},
			"restartPolicy": "Always",
		}},
	}}
	shadow.SetGroupVersionKind(offloading.GroupVersion.WithKind(offloading.ShadowPodKind))
	shadow.SetNamespace(namespace)
	shadow.SetName(name)
	shadow.SetLabels(map[string]string{"app": name, wire.OriginLabel: "consumer", wire.DestinationLabel: "provider"})
	shadow.SetAnnotations(map[string]string{"note": "one"})
	return shadow
}

func set(shadow *unstructured.Unstructured, value any, fields ...string) *unstructured.Unstructured {
	if err := unstructured.SetNestedField(shadow.Object, value, fields...); err != nil {
		panic(err)
	}
	return shadow
}

// awaitPod waits for a pod of shadow. not is a UID that this pod must not have.
func awaitPod(t *testing.T, shadow *unstructured.Unstructured, not types.UID) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	controllertest.Eventually(t, "the pod of "+shadow.GetName(), func() error {
		if err := provider.Client.Get(t.Context(), types.NamespacedName{Namespace: shadow.GetNamespace(), Name: shadow.GetName()}, pod); err != nil {
			return err
		}
		if pod.UID == not {
			return errors.New("it is the former one")
		}
		return nil
	})
	return pod
}

func awaitPhase(t *testing.T, shadow *unstructured.Unstructured, want corev1.PodPhase) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("phase %s of ShadowPod %s", want, shadow.GetName()), func() error {
		provider.Get(t, shadow, shadow.GetNamespace(), shadow.GetName())
		if phase, _, _ := unstructured.NestedString(shadow.Object, "status", "phase"); phase != string(want) {
			return fmt.Errorf("it is %q", phase)
		}
		return nil
	})
}

func setPhase(t *testing.T, pod *corev1.Pod, phase corev1.PodPhase) {
	t.Helper()
	provider.PatchStatus(t, pod, fmt.Sprintf(`{"status":{"phase":%q}}`, phase))
}

// settle waits until the controllers have processed all earlier changes. It creates another ShadowPod and waits for
// its pod.
func settle(t *testing.T, namespace string) {
	t.Helper()
	marker := shadowPod(namespace, "settled-"+fmt.Sprint(len(namespaceShadows(t, namespace))))
	provider.Create(t, marker)
	awaitPod(t, marker, "")
}

func namespaceShadows(t *testing.T, namespace string) []unstructured.Unstructured {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(offloading.GroupVersion.WithKind(offloading.ShadowPodKind + "List"))
	require.NoError(t, provider.Client.List(t.Context(), list))
	var found []unstructured.Unstructured
	for i := range list.Items {
		if list.Items[i].GetNamespace() == namespace {
			found = append(found, list.Items[i])
		}
	}
	return found
}

func podExists(t *testing.T, namespace, name string) bool {
	t.Helper()
	err := provider.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &corev1.Pod{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

func foreignPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "foreign"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "theirs", Image: "registry.example/theirs:1"}}},
	}
}
