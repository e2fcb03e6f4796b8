// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/ledger"
	"github.com/refract-project/refract/test/support/lab"
	"github.com/refract-project/refract/test/support/testenv"
)

// TestQuotaOfAConsumer runs all processes of both clusters. It checks that the creator of a ShadowPod is recorded and
// cannot be forged. If a pod exceeds the Quota, an Event about the consumer's pod must tell the user why.
func TestQuotaOfAConsumer(t *testing.T) {
	testenv.NeedControlPlane(t)
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	l, err := lab.Up(ctx, lab.Options{Log: t.Logf, Quotas: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, l.Down())
	})
	require.NoError(t, l.StartAll(ctx))
	require.NoError(t, l.AwaitNodeReady(ctx))
	_, err = l.Consumer.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = l.Refractctl(ctx, "offload", "namespace", "shop", "--context", lab.ConsumerID)
	require.NoError(t, err)
	shadows := offloading.ShadowPodGVR
	run := func(name, cpu string) {
		t.Helper()
		require.NoError(t, l.Wait(ctx, "pod "+name+" to be created", func(ctx context.Context) (string, error) {
			_, err := l.Consumer.Client.CoreV1().Pods("shop").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
				NodeName: lab.NodeName, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{Name: "app", Image: "none", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}},
			}}, metav1.CreateOptions{})
			if err != nil {
				return err.Error(), nil
			}
			return "", nil
		}))
	}
	creator := func(name string) (label string) {
		t.Helper()
		require.NoError(t, l.Wait(ctx, "ShadowPod "+name, func(ctx context.Context) (string, error) {
			shadow, err := l.Provider.Dynamic.Resource(shadows).Namespace("shop-home").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err.Error(), nil
			}
			label = shadow.GetLabels()[wire.CreatorUserLabel]
			return "", nil
		}))
		return label
	}
	run("first", "400m")
	if label := creator("first"); label != ledger.EscapeUser(lab.RemoteUser) {
		t.Fatalf("the creator of the ShadowPod is %q, want %q", label, ledger.EscapeUser(lab.RemoteUser))
	}

	config, err := l.Provider.ConfigFor(lab.RemoteUser, lab.ConsumerID)
	require.NoError(t, err)
	consumer := dynamic.NewForConfigOrDie(config).Resource(shadows).Namespace("shop-home")
	for _, forged := range []string{"somebody-else", ""} {
		require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
			shadow, err := consumer.Get(ctx, "first", metav1.GetOptions{})
			require.NoError(t, err)
			labels := shadow.GetLabels()
			labels[wire.CreatorUserLabel] = forged
			shadow.SetLabels(labels)
			_, err = consumer.Update(ctx, shadow, metav1.UpdateOptions{})
			return err
		}))
		if label := creator("first"); label != ledger.EscapeUser(lab.RemoteUser) {
			t.Errorf("after it was set to %q the creator is %q", forged, label)
		}
	}
	for what, text := range map[string]any{"no spec of a pod": "x", "containers that are none": map[string]any{"containers": map[string]any{"a": "b"}}, "a quantity that is none": map[string]any{
		"containers": []any{map[string]any{"name": "a", "resources": map[string]any{"requests": map[string]any{"cpu": "much"}}}}}} {
		bad := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod",
			"metadata": map[string]any{"name": "bad", "labels": map[string]any{wire.OriginLabel: lab.ConsumerID}}, "spec": map[string]any{"pod": text}}}
		if _, err := consumer.Create(ctx, bad, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "spec.pod") {
			t.Errorf("%s: %v", what, err)
		}
	}

	// The first pod uses 400m of the Quota, which is 500m.
	limit := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "offloading.liqo.io/v1beta1", "kind": "Quota", "metadata": map[string]any{"name": "home"},
		"spec": map[string]any{"user": lab.RemoteUser, "resources": map[string]any{"cpu": "500m"}}}}
	_, err = l.Provider.Dynamic.Resource(schema.GroupVersionResource{Group: "offloading.liqo.io", Version: "v1beta1", Resource: "quotas"}).
		Namespace(lab.ProviderTenantNamespace).Create(ctx, limit, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, l.Wait(ctx, "the Quota to be known", func(ctx context.Context) (string, error) {
		shadow, err := consumer.Get(ctx, "first", metav1.GetOptions{})
		if err != nil {
			return err.Error(), nil
		}
		larger := []any{map[string]any{"name": "app", "image": "none", "resources": map[string]any{"requests": map[string]any{"cpu": "9"}}}}
		require.NoError(t, unstructured.SetNestedSlice(shadow.Object, larger, "spec", "pod", "containers"))
		_, err = consumer.Update(ctx, shadow, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "exceeds the Quota") {
			return fmt.Sprintf("it is not enforced: %v", err), nil
		}
		return "", nil
	}))
	run("second", "200m")
	require.NoError(t, l.Wait(ctx, "the Event on the pod", func(ctx context.Context) (string, error) {
		events, err := l.Consumer.Client.CoreV1().Events("shop").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=second,type=Warning"})
		if err != nil {
			return err.Error(), nil
		}
		var said []string
		for _, event := range events.Items {
			said = append(said, event.Message)
			if strings.Contains(event.Message, "cpu: requested 200m, used 400m, limited 500m") && strings.Contains(event.Message, "ask an administrator") {
				return "", nil
			}
		}
		return fmt.Sprintf("there are %q", said), nil
	}))
	require.NoError(t, l.Consumer.Client.CoreV1().Pods("shop").Delete(ctx, "first", metav1.DeleteOptions{}))
	require.NoError(t, l.Wait(ctx, "the second pod to run when the first is gone", func(ctx context.Context) (string, error) {
		pod, err := l.Consumer.Client.CoreV1().Pods("shop").Get(ctx, "second", metav1.GetOptions{})
		if err != nil || pod.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("it is %s, %v", pod.Status.Phase, err), nil
		}
		return "", nil
	}))
}
