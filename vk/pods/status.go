// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// containerLists are the fields of a status that list containers.
var containerLists = []string{"initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"}

// Phase returns the phase of a status, "" when there is none.
func Phase(status map[string]any) corev1.PodPhase {
	phase, _ := status["phase"].(string)
	return corev1.PodPhase(phase)
}

// Reason returns the reason of a status, "" when there is none.
func Reason(status map[string]any) string {
	reason, _ := status["reason"].(string)
	return reason
}

// Finished reports whether a phase is final.
func Finished(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// Untouched reports whether no kubelet has begun with the pod: it is Pending and has no container status.
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

// Reject returns the status with the given phase and reason: no condition is True any more, no container is ready,
// and in a final phase every container has ended. The IP and what containers had already said about their end stay.
// (Liqo: rejected pods.)
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
		rejected["conditions"] = each(conditions, func(condition map[string]any) { falsify(condition, reason, stamp) })
	}
	for _, list := range containerLists {
		if items, ok := status[list].([]any); ok {
			rejected[list] = each(items, func(container map[string]any) { end(container, phase, reason, stamp) })
		}
	}
	return rejected
}

// each returns the list with a changed copy of each of its maps.
func each(list []any, edit func(map[string]any)) []any {
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

func falsify(condition map[string]any, reason, stamp string) {
	if condition["status"] != string(corev1.ConditionTrue) {
		return
	}
	condition["status"], condition["reason"], condition["lastTransitionTime"] = string(corev1.ConditionFalse), reason, stamp
}

func end(container map[string]any, phase corev1.PodPhase, reason, stamp string) {
	container["ready"] = false
	state, _ := container["state"].(map[string]any)
	if !Finished(phase) || state["terminated"] != nil {
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

// Settle makes a status that came from the provider acceptable to this cluster's API server, which holds it to rules
// that were never meant for a status from elsewhere: the quality-of-service class is immutable (the provider may
// compute another one), a nominated node is refused on a bound pod, and where containers do not restart one that has
// ended may not run again (the provider's pod may have been re-created). local is the status that the pod has now.
func Settle(next, local map[string]any, restartPolicy string) map[string]any {
	settled := maps.Clone(next)
	delete(settled, "nominatedNodeName")
	delete(settled, "qosClass")
	if class, ok := local["qosClass"]; ok {
		settled["qosClass"] = class
	}
	if restartPolicy != string(corev1.RestartPolicyNever) && restartPolicy != string(corev1.RestartPolicyOnFailure) {
		return settled
	}
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		keepEnded(settled, local, list, restartPolicy)
	}
	return settled
}

func keepEnded(settled, local map[string]any, list, restartPolicy string) {
	before := byName(local[list])
	items, _ := settled[list].([]any)
	present := map[string]bool{}
	kept := make([]any, 0, len(items))
	for _, item := range items {
		entry, _ := item.(map[string]any)
		name, _ := entry["name"].(string)
		present[name] = true
		if old := before[name]; endedForGood(old, restartPolicy) && exitCode(entry) == nil {
			item = old
		}
		kept = append(kept, item)
	}
	for _, item := range listOf(local[list]) {
		entry, _ := item.(map[string]any)
		if name, _ := entry["name"].(string); !present[name] && endedForGood(entry, restartPolicy) {
			kept = append(kept, item)
		}
	}
	if len(kept) > 0 {
		settled[list] = kept
	}
}

func listOf(value any) []any {
	list, _ := value.([]any)
	return list
}

func byName(value any) map[string]map[string]any {
	named := map[string]map[string]any{}
	for _, item := range listOf(value) {
		entry, _ := item.(map[string]any)
		if name, ok := entry["name"].(string); ok {
			named[name] = entry
		}
	}
	return named
}

// exitCode is nil while a container has not ended.
func exitCode(container map[string]any) *int64 {
	state, _ := container["state"].(map[string]any)
	terminated, ok := state["terminated"].(map[string]any)
	if !ok {
		return nil
	}
	code, _ := number(terminated["exitCode"])
	return &code
}

func endedForGood(container map[string]any, restartPolicy string) bool {
	code := exitCode(container)
	return code != nil && (restartPolicy == string(corev1.RestartPolicyNever) || *code == 0)
}

// number reads a whole number as unstructured objects hold them.
func number(value any) (int64, bool) {
	switch n := value.(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), true
	default:
		return 0, false
	}
}
