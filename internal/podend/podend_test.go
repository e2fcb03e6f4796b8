// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podend

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	always, onFailure, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	succeeded, failed        = corev1.PodSucceeded, corev1.PodFailed
)

func TestPodsThatNobodyDeletes(t *testing.T) {
	for _, c := range []struct {
		phase      corev1.PodPhase
		disruption string
		want       corev1.PodPhase
	}{
		{corev1.PodRunning, "", ""},
		{corev1.PodPending, "", ""},
		{corev1.PodUnknown, "", ""},
		{succeeded, "", succeeded},
		{failed, "", failed},
		{failed, "DeletionByPodGC", ""},
		{failed, corev1.PodReasonPreemptionByScheduler, ""},
		{failed, corev1.PodReasonTerminationByKubelet, failed}, // evicted for lack of resources, the object remains
		{corev1.PodRunning, corev1.PodReasonPreemptionByScheduler, ""},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: always}, Status: corev1.PodStatus{Phase: c.phase}}
		if c.disruption != "" {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: c.disruption}}
		}
		if got := FinalPhase(pod); got != c.want {
			t.Errorf("%s, disruption %q: %q, want %q", c.phase, c.disruption, got, c.want)
		}
	}
}

// TestPodsThatAreDeleted checks which deleted pods have ended for good, for each restart policy, and for processes that
// exit on SIGTERM and processes that are killed. The process ends before the deletion is requested, in the same second,
// or later. Only in the first case can the pod have ended for good.
func TestPodsThatAreDeleted(t *testing.T) {
	asked := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, grace := range []int64{0, 30} {
		for _, policy := range []corev1.RestartPolicy{always, onFailure, never} {
			for _, exit := range []int32{0, 137} {
				for _, after := range []time.Duration{-time.Hour, -time.Second, 0, 20 * time.Second} {
					phase, want := succeeded, corev1.PodPhase("")
					if exit != 0 {
						phase = failed
					}
					// After the grace period, the time of the request is only known to within the pod's own grace
					// period of 30 s.
					if (after < 0 && grace > 0 || after < -time.Minute) && (policy == never || policy == onFailure && exit == 0) {
						want = phase
					}
					name := fmt.Sprintf("%s exit %d %v grace %d", policy, exit, after, grace)
					pod := &corev1.Pod{
						ObjectMeta: metav1.ObjectMeta{
							DeletionTimestamp: &metav1.Time{Time: asked.Add(time.Duration(grace) * time.Second)}, DeletionGracePeriodSeconds: &grace,
						},
						Spec: corev1.PodSpec{RestartPolicy: policy},
						Status: corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
							Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, FinishedAt: metav1.NewTime(asked.Add(after))},
						}}}},
					}
					if got := FinalPhase(pod); got != want {
						t.Errorf("%s: %q, want %q", name, got, want)
					}
				}
			}
		}
	}
}
