// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/internal/podend"
)

// containerLists are the fields of a status with lists of container statuses.
var containerLists = []string{"initContainerStatuses", "containerStatuses", ephemeralStatuses}

// Phase returns the phase in a status, or an empty string if there is none.
func Phase(status map[string]any) corev1.PodPhase {
	phase, _ := status["phase"].(string)
	return corev1.PodPhase(phase)
}

// Reason returns the reason in a status, or an empty string if there is none.
func Reason(status map[string]any) string {
	reason, _ := status["reason"].(string)
	return reason
}

// Untouched reports whether no kubelet has started the pod yet, i.e. whether it is Pending and has no container
// statuses.
func Untouched(status map[string]any) bool {
	if phase := Phase(status); phase != corev1.PodPending && phase != "" {
		return false
	}
	for _, list := range containerLists {
		if items, _ := status[list].([]any); len(items) > 0 {
			return false
		}
	}
	return true
}

// Reject returns the status of a pod that no longer runs, with the given phase and reason. In the result, no condition
// written by a kubelet is True, and no container is ready. If the phase is final, all containers have terminated. The
// IP, the exit codes of terminated containers and the conditions of other writers are kept. For example, the Job
// controller must be able to see that a pod was evicted. This corresponds to Liqo's rejected pods.
func Reject(status map[string]any, phase corev1.PodPhase, reason, message string, now time.Time) map[string]any {
	rejected := maps.Clone(status)
	if rejected == nil {
		rejected = map[string]any{}
	}
	rejected["phase"], rejected["reason"] = string(phase), reason
	delete(rejected, "message")
	if message != "" {
		rejected["message"] = message
	}
	stamp := now.UTC().Format(time.RFC3339)
	if conditions, ok := status["conditions"].([]any); ok {
		rejected["conditions"] = editEach(conditions, func(condition map[string]any) { falsifyCondition(condition, reason, stamp) })
	}
	for _, list := range containerLists {
		if items, ok := status[list].([]any); ok {
			rejected[list] = editEach(items, func(container map[string]any) { endContainer(container, phase, reason, stamp) })
		}
	}
	return rejected
}

// Interrupt returns the status of a running pod that is temporarily not available. The phase and the states of the
// containers are kept, but the pod is not ready. If the pod was not running, its status is returned unchanged.
func Interrupt(status map[string]any, reason, message string, now time.Time) map[string]any {
	if Phase(status) != corev1.PodRunning {
		return status
	}
	interrupted := maps.Clone(status)
	stamp := now.UTC().Format(time.RFC3339)
	conditions := listOf(status["conditions"])
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		before := findCondition(status, string(kind))
		if before["status"] == string(corev1.ConditionFalse) && before["reason"] == reason && before["message"] == message {
			continue
		}
		after := map[string]any{"type": string(kind), "status": string(corev1.ConditionFalse), "reason": reason, "message": message, "lastTransitionTime": stamp}
		if since := before["lastTransitionTime"]; since != nil && before["status"] == after["status"] {
			after["lastTransitionTime"] = since
		}
		conditions = putCondition(conditions, after)
	}
	interrupted["conditions"] = conditions
	for _, list := range containerLists {
		if items, ok := status[list].([]any); ok {
			interrupted[list] = editEach(items, func(container map[string]any) {
				if state, _ := container["state"].(map[string]any); state["running"] != nil {
					container["ready"] = false
				}
			})
		}
	}
	return interrupted
}

// editEach returns a list with changed copies of all maps in the list. edit changes a copy.
func editEach(list []any, edit func(map[string]any)) []any {
	edited := make([]any, len(list))
	for i, item := range list {
		entry, ok := item.(map[string]any)
		if !ok {
			edited[i] = item
			continue
		}
		entry = maps.Clone(entry)
		edit(entry)
		edited[i] = entry
	}
	return edited
}

func falsifyCondition(condition map[string]any, reason, stamp string) {
	if !isTrue(condition) || !ofKubelet(condition) {
		return
	}
	condition["status"], condition["reason"], condition["lastTransitionTime"] = string(corev1.ConditionFalse), reason, stamp
}

func endContainer(container map[string]any, phase corev1.PodPhase, reason, stamp string) {
	container["ready"] = false
	state, _ := container["state"].(map[string]any)
	if !podend.Finished(phase) || state["terminated"] != nil {
		return
	}
	terminated := map[string]any{"exitCode": int64(1), "reason": reason, "finishedAt": stamp}
	if phase == corev1.PodSucceeded {
		terminated["exitCode"] = int64(0)
	}
	if running, ok := state["running"].(map[string]any); ok && running["startedAt"] != nil {
		terminated["startedAt"] = running["startedAt"]
	}
	container["state"] = map[string]any{"terminated": terminated}
}
