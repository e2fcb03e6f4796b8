// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestPodsThatAreFirstSeenRunningAreLookedAt checks that pods are reconciled even if they are already running when a
// watch first shows them. After an interruption, a watch shows pods only in their current state.
func TestPodsThatAreFirstSeenRunningAreLookedAt(t *testing.T) {
	c := NewController(nil, nil, nil, Options{})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	c.podHandler().Create(t.Context(), event.CreateEvent{Object: pod, IsInInitialList: true}, queue)
	if queue.Len() != 0 {
		t.Error("at the start, a pod is looked at as well as its ShadowPod")
	}
	c.podHandler().Create(t.Context(), event.CreateEvent{Object: pod}, queue)
	if queue.Len() != 1 {
		t.Error("a pod that appears is not looked at")
	}
}
