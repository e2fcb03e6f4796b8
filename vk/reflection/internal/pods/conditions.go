// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/host/document"
)

// gatesNotReady is the reason that a kubelet sets if a pod is not ready although all of its containers are.
const gatesNotReady = "ReadinessGatesNotReady"

// ofKubelets lists the conditions of a pod that are written by a kubelet. For offloaded pods, this is a kubelet of the
// provider. Other conditions belong to the clients that write them.
var ofKubelets = []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized, corev1.ContainersReady,
	corev1.PodReadyToStartContainers, corev1.PodResizeInProgress, corev1.PodResizePending, corev1.AllContainersRestarting}

func ofKubelet(condition map[string]any) bool {
	kind, _ := condition["type"].(string)
	return slices.Contains(ofKubelets, corev1.PodConditionType(kind))
}

// Conditions merges the conditions of a pod that are not written by a kubelet: readiness gates, evictions, preemptions,
// and custom conditions. Conditions written by clients of this cluster are never changed. Conditions written on the
// provider are reflected. A note distinguishes the two. It contains the conditions that were reflected from the
// provider, with their content at that time.
//
// next is the status from the provider, and local is the current status in this cluster. gates contains the pod's
// readiness gates, in order. followed contains the gates whose value is taken from the provider, or "*" for all gates.
// The other gates can be set only in this cluster. now is the transition time of changed conditions. Conditions returns
// the status to write and the note to store with it.
func Conditions(next, local map[string]any, gates, followed []string, note string, now time.Time) (map[string]any, string) {
	ignored := gates
	if slices.Contains(followed, "*") {
		ignored = nil
	}
	ignored = slices.DeleteFunc(slices.Clone(ignored), func(gate string) bool { return slices.Contains(followed, gate) })
	next = withoutConditions(next, ignored)
	types := contestedTypes(next, local, gates)
	if len(types) == 0 && note == "" {
		return next, ""
	}
	taken := map[string]string{}
	// The error is ignored, because an invalid note is treated as empty.
	_ = json.Unmarshal([]byte(note), &taken)
	following, kept, judged := map[string]string{}, map[string]map[string]any{}, len(ignored) > 0
	for _, kind := range types {
		own, theirs := findCondition(local, kind), findCondition(next, kind)
		switch {
		case own != nil && taken[kind] != conditionContent(own) && conditionContent(own) != conditionContent(theirs):
			kept[kind] = own
			judged = judged || slices.Contains(gates, kind)
		case theirs != nil:
			following[kind] = conditionContent(theirs)
		}
	}
	text, err := json.Marshal(following)
	if err != nil || len(following) == 0 && note == "" {
		text = nil
	}
	if len(kept) == 0 && !judged {
		return next, string(text)
	}
	merged := maps.Clone(next)
	if len(kept) > 0 {
		merged["conditions"] = mergeConditions(next, local, kept)
	}
	if judged {
		judgeReadiness(merged, local, gates, now)
	}
	return merged, string(text)
}

// withoutConditions returns the status without the conditions of the given types.
func withoutConditions(status map[string]any, types []string) map[string]any {
	conditions := listOf(status["conditions"])
	strikes := func(item any) bool {
		found, _ := item.(map[string]any)
		kind, _ := found["type"].(string)
		return slices.Contains(types, kind)
	}
	if !slices.ContainsFunc(conditions, strikes) {
		return status
	}
	status = maps.Clone(status)
	status["conditions"] = slices.DeleteFunc(slices.Clone(conditions), strikes)
	return status
}

// contestedTypes returns the types of conditions that clients in both clusters may write.
func contestedTypes(next, local map[string]any, gates []string) []string {
	types := slices.Clone(gates)
	for _, status := range []map[string]any{next, local} {
		for _, item := range listOf(status["conditions"]) {
			found, _ := item.(map[string]any)
			kind, ok := found["type"].(string)
			if ok && !ofKubelet(found) && !slices.Contains(types, kind) {
				types = append(types, kind)
			}
		}
	}
	return types
}

// mergeConditions returns the conditions in next and kept. They are in the order of local, because a different order
// would require a write.
func mergeConditions(next, local map[string]any, kept map[string]map[string]any) (merged []any) {
	for _, item := range listOf(local["conditions"]) {
		own, _ := item.(map[string]any)
		kind, _ := own["type"].(string)
		if kept[kind] != nil {
			merged = append(merged, own)
		} else if theirs := findCondition(next, kind); theirs != nil {
			merged = append(merged, theirs)
		}
	}
	for _, item := range listOf(next["conditions"]) {
		if theirs, _ := item.(map[string]any); findCondition(local, fmt.Sprint(theirs["type"])) == nil {
			merged = append(merged, item)
		}
	}
	return merged
}

// judgeReadiness computes the readiness of a pod from all of its readiness gates. The readiness that the provider's
// kubelet reports is not sufficient, because this kubelet knows only the gates of the provider's pod.
func judgeReadiness(status, local map[string]any, gates []string, now time.Time) {
	ready := findCondition(status, string(corev1.PodReady))
	closed := slices.IndexFunc(gates, func(gate string) bool { return !isTrue(findCondition(status, gate)) })
	judged := maps.Clone(ready)
	switch {
	case isTrue(ready) && closed >= 0:
		judged["status"], judged["reason"] = string(corev1.ConditionFalse), gatesNotReady
		judged["message"] = fmt.Sprintf("the condition of readiness gate %q is not True", gates[closed])
	case ready["reason"] == gatesNotReady && closed < 0 && isTrue(findCondition(status, string(corev1.ContainersReady))):
		judged["status"] = string(corev1.ConditionTrue)
		delete(judged, "reason")
		delete(judged, "message")
	default:
		return
	}
	judged["lastTransitionTime"] = now.UTC().Format(time.RFC3339)
	if before := findCondition(local, string(corev1.PodReady)); before["status"] == judged["status"] && before["lastTransitionTime"] != nil {
		judged["lastTransitionTime"] = before["lastTransitionTime"]
	}
	status["conditions"] = putCondition(listOf(status["conditions"]), judged)
}

// Condition returns the condition of the given type, or nil if there is none.
func Condition(status map[string]any, kind corev1.PodConditionType) map[string]any {
	return findCondition(status, string(kind))
}

func findCondition(status map[string]any, kind string) map[string]any {
	for _, item := range listOf(status["conditions"]) {
		if found, _ := item.(map[string]any); found["type"] == kind {
			return found
		}
	}
	return nil
}

func isTrue(condition map[string]any) bool {
	return condition["status"] == string(corev1.ConditionTrue)
}

// putCondition returns the conditions with one added or replaced.
func putCondition(conditions []any, one map[string]any) []any {
	conditions = slices.Clone(conditions)
	for i, item := range conditions {
		if found, _ := item.(map[string]any); found["type"] == one["type"] {
			conditions[i] = one
			return conditions
		}
	}
	return append(conditions, one)
}

// conditionContent returns the fields of a condition that are compared, as text. Unknown fields are ignored. For nil,
// it returns an empty string.
func conditionContent(condition map[string]any) string {
	if condition == nil {
		return ""
	}
	statement := map[string]any{}
	for _, key := range []string{"status", "reason", "message", "lastTransitionTime"} {
		if value := condition[key]; value != nil && value != "" {
			statement[key] = value
		}
	}
	return strconv.FormatUint(document.Hash(statement), 36)
}
