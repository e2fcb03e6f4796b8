// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package podend decides whether a pod of the provider has ended for good.
//
// A terminal phase alone does not mean that a pod has ended for good. When a pod is deleted, the kubelet stops it and
// reports a terminal phase until the object is removed a moment later: Succeeded if the containers exit with 0 on
// SIGTERM, and Failed otherwise. The control plane sets pods to Failed when it drains or preempts them, or when their
// node is lost. In these cases the provider's pod is replaced. The consumer's pod has not ended, and controllers on the
// consumer must not treat it as finished.
//
// Both the provider's controller, which creates the replacement, and the virtual kubelet, which reflects the status,
// use this package. If their decisions differed, a pod might be replaced although the consumer already considers it
// finished, or not be replaced although the consumer expects this.
package podend

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// deadlineExceeded is the reason in the status of a pod that the kubelet failed because it exceeded its
// activeDeadlineSeconds.
const deadlineExceeded = "DeadlineExceeded"

// Finished reports whether a phase is terminal. Use FinalPhase to find out whether a pod has ended for good.
func Finished(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// FinalPhase returns the phase of a pod that has ended for good, or an empty string if it is still expected to run:
//
//   - A pod that is not being deleted has ended if its phase is terminal, unless the control plane failed it in order to
//     delete it (a DisruptionTarget condition other than a kubelet's).
//   - A pod that is being deleted has ended only if it had ended before its deletion was requested. A container that
//     ends in the same second or later was stopped. A container that is always restarted never ends by itself.
func FinalPhase(pod *corev1.Pod) corev1.PodPhase {
	phase := pod.Status.Phase
	switch {
	case !Finished(phase):
		return ""
	case phase == corev1.PodFailed && isBeingReplaced(pod):
		return ""
	case pod.DeletionTimestamp == nil, endedBefore(pod):
		return phase
	}
	return ""
}

// endedBefore reports whether a pod in a terminal phase had already ended when its deletion was requested.
func endedBefore(pod *corev1.Pod) bool {
	policy := pod.Spec.RestartPolicy
	if policy != corev1.RestartPolicyNever && policy != corev1.RestartPolicyOnFailure {
		return false
	}
	if pod.Status.Phase == corev1.PodFailed {
		if pod.Status.Reason == deadlineExceeded || Disruption(pod) == corev1.PodReasonTerminationByKubelet {
			return true
		}
		if policy == corev1.RestartPolicyOnFailure {
			// A failed container would be restarted unless the pod is being stopped.
			return false
		}
	}
	return containersEndedBefore(pod, askedAt(pod))
}

// askedAt returns the earliest time at which the deletion of a pod may have been requested.
//
// During the grace period, this time is known exactly. At the end of the grace period, the kubelet deletes the pod
// again with a grace period of 0. If a finalizer still holds the pod, the API server sets the deletion timestamp to the
// current time (Kubernetes: registry, markAsDeleting). The deletion was then requested earlier by up to the pod's own
// grace period.
func askedAt(pod *corev1.Pod) time.Time {
	grace := ptr.Deref(pod.DeletionGracePeriodSeconds, 0)
	if grace == 0 {
		grace = ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	}
	return pod.DeletionTimestamp.Add(-(time.Duration(grace) * time.Second))
}

// containersEndedBefore reports whether all containers ended before the deletion was requested. If the pod's phase is
// Failed, one of them must have failed. If the phase is Succeeded and there are no container statuses, the result is
// true, because nothing else can have stopped the containers.
func containersEndedBefore(pod *corev1.Pod, asked time.Time) bool {
	failed, known := false, false
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			ended := statuses[i].State.Terminated
			switch {
			// An earlier container failed, so this container never started.
			case ended == nil:
				continue
			case ended.FinishedAt.IsZero() || !ended.FinishedAt.Time.Before(asked):
				return false
			case ended.ExitCode != 0:
				failed = true
			}
			known = true
		}
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		return known || len(pod.Status.ContainerStatuses) == 0
	}
	return failed
}

// isBeingReplaced reports whether the control plane failed the pod in order to delete it. A kubelet that fails a pod
// because of a lack of resources (TerminationByKubelet) does not delete it, so that pod has ended for good.
func isBeingReplaced(pod *corev1.Pod) bool {
	reason := Disruption(pod)
	return reason != "" && reason != corev1.PodReasonTerminationByKubelet
}

// Disruption returns the reason why a component other than the pod itself stopped the pod, or "" if none did.
func Disruption(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
			return condition.Reason
		}
	}
	return ""
}
