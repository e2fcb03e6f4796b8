// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/lab"
)

// awaitWebhook waits until a namespace has the label that makes the API server call the webhook for its pods. Without
// the toleration that the webhook adds, pods cannot run on a virtual node.
func awaitWebhook(ctx context.Context, t *testing.T, l *lab.Lab, name string) {
	t.Helper()
	require.NoError(t, l.Wait(ctx, "the webhook to be asked about the namespace", func(ctx context.Context) (string, error) {
		namespace, err := l.Consumer.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err == nil && namespace.Labels[wire.SchedulingEnabledLabel] != "true" {
			return "it has no label yet", nil
		}
		return "", err
	}))
}

// TestRollingUpdate replaces the replicas of the controller manager and of the virtual kubelet one after the other, as
// a Deployment does. Meanwhile, pods, ConfigMaps and namespaces are created all the time. The test checks that the
// webhook is called for every pod, that every ConfigMap is reflected, and that every namespace is offloaded.
func TestRollingUpdate(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	l := start(ctx, t, lab.Options{Replicated: true, Elect: true})
	require.NoError(t, l.StartAll(ctx))
	require.NoError(t, l.StartSecondManager(ctx))
	require.NoError(t, l.StartStandby(ctx))
	require.NoError(t, l.AwaitNodeReady(ctx))
	offload(ctx, t, l, "shop")
	awaitWebhook(ctx, t, l, "shop")

	working, stop := context.WithCancel(ctx)
	defer stop()
	type result struct {
		pods             int
		missed, settings []string
		err              error
	}
	users := make(chan result, 1)
	var created atomic.Int64
	go func() {
		var r result
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for ; working.Err() == nil && r.err == nil; r.pods++ {
			var pod *corev1.Pod
			pod, r.err = l.Consumer.Client.CoreV1().Pods("shop").Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", r.pods)},
				Spec:       corev1.PodSpec{NodeSelector: map[string]string{"nowhere": "true"}, Containers: []corev1.Container{{Name: "c", Image: "image"}}},
			}, metav1.CreateOptions{})
			if r.err == nil && !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == wire.VirtualNodeTaint }) {
				r.missed = append(r.missed, pod.Name) // the webhook was not called for this pod
			}
			if created.Add(1)%10 == 0 && r.err == nil {
				name := fmt.Sprintf("settings-%d", r.pods)
				_, r.err = l.Consumer.Client.CoreV1().ConfigMaps("shop").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				r.settings = append(r.settings, name)
			}
			<-pace.C
		}
		users <- r
	}()
	startFirst := func(ctx context.Context) error {
		if err := l.StartConsumerManager(ctx); err != nil {
			return err
		}
		return l.AwaitWebhook(ctx)
	}
	both := l.WebhookAddresses()
	var names []string
	for round := range 2 {
		for replica, restart := range []struct{ stop, start func(context.Context) error }{
			{l.StopConsumerManager, startFirst},
			{l.StopSecondManager, l.StartSecondManager},
		} {
			// New connections use the other replica, while existing connections still use the stopped one.
			l.Webhook.Direct(both[1-replica])
			before := created.Load()
			require.NoError(t, l.Wait(ctx, "pods through the other replica", func(context.Context) (string, error) {
				if n := created.Load() - before; n < 20 {
					return fmt.Sprintf("%d were created", n), nil
				}
				return "", nil
			}))
			name := fmt.Sprintf("extended-%d-%d", round, replica)
			names = append(names, name)
			extend(ctx, t, l, name)
			require.NoError(t, restart.stop(ctx))
			require.NoError(t, restart.start(ctx))
			l.Webhook.Direct(both...)
		}
	}
	require.NoError(t, l.StopKubelet(ctx))
	require.NoError(t, l.StartKubelet(ctx))
	stop()
	r := <-users
	require.NoError(t, r.err)
	assert.Positive(t, r.pods)
	assert.Empty(t, r.missed, "pods of %d that did not pass the webhook", r.pods)
	t.Logf("%d pods passed the webhook", r.pods)
	require.NoError(t, l.Wait(ctx, "the ConfigMaps to be reflected", func(ctx context.Context) (string, error) {
		for _, name := range r.settings {
			if _, err := l.Provider.Client.CoreV1().ConfigMaps("shop-"+lab.ConsumerID).Get(ctx, name, metav1.GetOptions{}); err != nil {
				return fmt.Sprintf("of %d one is missing: %v", len(r.settings), err), nil
			}
		}
		return "", nil
	}))
	for _, name := range names {
		require.NoError(t, l.Wait(ctx, "namespace "+name+" to be extended", func(ctx context.Context) (string, error) {
			found, err := l.Consumer.Dynamic.Resource(offloadingv1beta1.NamespaceOffloadingGVR).Namespace(name).Get(ctx, offloadingv1beta1.NamespaceOffloadingName, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			if phase, _, _ := unstructured.NestedString(found.Object, "status", "offloadingPhase"); phase != string(offloadingv1beta1.ReadyOffloadingPhaseType) {
				return "its phase is " + phase, nil
			}
			return "", nil
		}))
	}
}
