// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/refract-project/refract/test/support/lab"
	"github.com/refract-project/refract/test/support/testenv"
)

// resilient is the state of testResiliency, which uses pods of each restart policy. Some of their containers stop on
// SIGTERM, others must be killed.
type resilient struct {
	t      *testing.T
	l      *lab.Lab
	remote string // the remote namespace
	pods   map[string]types.UID
	rounds int32 // how often the pods were stopped

	mu       sync.Mutex
	finished []string // pods whose final phase the consumer has seen; must remain empty
}

// testResiliency stops pods on the provider in every way that Kubernetes stops pods. It checks that each pod is created
// again, and that the consumer never sees a final phase. This corresponds to Liqo's remote pod resiliency.
func testResiliency(ctx context.Context, t *testing.T, l *lab.Lab) {
	r := &resilient{t: t, l: l, pods: map[string]types.UID{}}
	pods := l.Consumer.Client.CoreV1().Pods("shop")
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever} {
		for _, code := range []string{"0", "137"} {
			pod, err := pods.Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name: strings.ToLower(string(policy)) + "-" + code, Annotations: map[string]string{testenv.ExitCodeAnnotation: code}, Labels: map[string]string{"test": "resilient"},
				},
				Spec: corev1.PodSpec{
					NodeName: lab.NodeName, RestartPolicy: policy, Containers: []corev1.Container{{Name: "app", Image: "none"}},
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, TerminationGracePeriodSeconds: ptr.To(int64(5)),
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			r.pods[pod.Name] = pod.UID
		}
	}
	watchCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.watch(watchCtx)
	r.run(ctx)
	for _, how := range []struct {
		name string
		stop func(ctx context.Context, name string) error
	}{
		{"preemption", r.preempt},
		{"eviction, as of a drain", r.evict},
		{"deletion with grace", func(ctx context.Context, name string) error {
			return r.provider().Delete(ctx, name, metav1.DeleteOptions{})
		}},
		{"deletion without grace", func(ctx context.Context, name string) error {
			return r.provider().Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
		}},
	} {
		t.Log(how.name)
		r.stop(ctx, how.stop)
		r.run(ctx)
	}
	t.Log("eviction while the consumer is away")
	require.NoError(t, l.StopKubelet(ctx))
	r.stop(ctx, r.evict)
	require.NoError(t, l.StartKubelet(ctx))
	r.run(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.finished {
		t.Error(f)
	}
}

func (r *resilient) provider() podClient { return r.l.Provider.Client.CoreV1().Pods(r.remote) }

type podClient interface {
	EvictV1(ctx context.Context, eviction *policyv1.Eviction) error
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error)
	UpdateStatus(ctx context.Context, pod *corev1.Pod, opts metav1.UpdateOptions) (*corev1.Pod, error)
}

func (r *resilient) evict(ctx context.Context, name string) error {
	return r.provider().EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: r.remote, Name: name}})
}

// preempt sets the condition of a preempted pod and deletes the pod, as a scheduler does for a pod with a higher
// priority.
func (r *resilient) preempt(ctx context.Context, name string) error {
	pod, err := r.provider().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler, LastTransitionTime: metav1.Now(),
	})
	if _, err := r.provider().UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return r.provider().Delete(ctx, name, metav1.DeleteOptions{})
}

// watch records every final phase that the consumer sees.
func (r *resilient) watch(ctx context.Context) {
	watch, err := r.l.Consumer.Client.CoreV1().Pods("shop").Watch(ctx, metav1.ListOptions{LabelSelector: "test=resilient"})
	require.NoError(r.t, err)
	go func() {
		for event := range watch.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if ok && (event.Type == "DELETED" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed) {
				r.mu.Lock()
				r.finished = append(r.finished, fmt.Sprintf("pod %s was %s, %s, after it was stopped %d times", pod.Name, event.Type, pod.Status.Phase, r.rounds))
				r.mu.Unlock()
			}
		}
	}()
}

// stop stops all pods on the provider, and waits until each pod was created again.
func (r *resilient) stop(ctx context.Context, stop func(ctx context.Context, name string) error) {
	r.t.Helper()
	for name := range r.pods {
		pod, err := r.provider().Get(ctx, name, metav1.GetOptions{})
		require.NoError(r.t, err)
		require.NoError(r.t, stop(ctx, name))
		require.NoError(r.t, r.l.Wait(ctx, "another pod "+name+" on the provider", func(ctx context.Context) (string, error) {
			now, err := r.provider().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				shadow, _ := r.l.Kubectl(ctx, "--context=cloud", "-n="+r.remote, "get", "shadowpod", name, "-o=jsonpath={.status}")
				return fmt.Sprintf("%v; its ShadowPod says %s", err, shadow), nil
			}
			if now.UID == pod.UID {
				return fmt.Sprintf("it is the same, %s", now.Status.Phase), nil
			}
			return "", nil
		}))
	}
	r.mu.Lock()
	r.rounds++
	r.mu.Unlock()
}

// run waits until the consumer sees that all pods are ready and were restarted as often as they were stopped.
func (r *resilient) run(ctx context.Context) {
	r.t.Helper()
	for name, uid := range r.pods {
		require.NoError(r.t, r.l.Wait(ctx, "pod "+name+" to run", func(ctx context.Context) (string, error) {
			pod, err := r.l.Consumer.Client.CoreV1().Pods("shop").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err.Error(), nil
			}
			r.remote = "shop-" + r.l.Consumer.ID
			status := pod.Status
			ready := status.Phase == corev1.PodRunning && len(status.ContainerStatuses) == 1 && status.ContainerStatuses[0].Ready
			if pod.UID != uid || !ready || status.ContainerStatuses[0].RestartCount != r.rounds {
				return fmt.Sprintf("it is %s, of %d restarts %+v", status.Phase, r.rounds, status.ContainerStatuses), nil
			}
			return "", nil
		}))
	}
}

// TestResiliency runs testResiliency on a provider with simulated nodes, which stop pods as kubelets do.
func TestResiliency(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	l := start(ctx, t, lab.Options{})
	require.NoError(t, l.StartAll(ctx))
	require.NoError(t, l.AwaitNodeReady(ctx))
	offload(ctx, t, l, "shop")
	testResiliency(ctx, t, l)
}
