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

// gatesNotReady is why a kubelet calls a pod not ready whose containers are.
const gatesNotReady = "ReadinessGatesNotReady"

// Gates merges the conditions that the readiness gates of a pod ask for. Who writes them is up to the user: somebody in this
// cluster, whose word nobody else may touch, or somebody at the provider, who is followed. The note tells the two apart: it
// says which of the conditions here were taken over from the provider, and what they said then.
//
// next is the status from the provider, local the one shown, types are the gates in their order. The results are the status
// to show and the note to keep with it; now is for a condition that changes because of that.
func Gates(next, local map[string]any, types []string, note string, now time.Time) (map[string]any, string) {
	taken := map[string]string{}
	_ = json.Unmarshal([]byte(note), &taken) // what is no note says nothing
	conditions := slices.Clone(listOf(next["conditions"]))
	following, kept := map[string]string{}, false
	for _, gate := range types {
		own, theirs := condition(local, gate), condition(next, gate)
		switch {
		case own != nil && taken[gate] != said(own) && said(own) != said(theirs):
			conditions, kept = put(conditions, own), true
		case theirs != nil:
			following[gate] = said(theirs)
		}
	}
	text, err := json.Marshal(following)
	if err != nil || len(following) == 0 && note == "" {
		text = nil
	}
	if !kept {
		return next, string(text)
	}
	merged := maps.Clone(next)
	merged["conditions"] = conditions
	judge(merged, local, types, now)
	return merged, string(text)
}

// judge makes a pod ready, or not, because of its gates, as a kubelet does that sees all of them. The provider's sees only
// those over there.
func judge(status, local map[string]any, types []string, now time.Time) {
	ready := condition(status, string(corev1.PodReady))
	closed := slices.IndexFunc(types, func(gate string) bool { return !isTrue(condition(status, gate)) })
	judged := maps.Clone(ready)
	switch {
	case isTrue(ready) && closed >= 0:
		judged["status"], judged["reason"] = string(corev1.ConditionFalse), gatesNotReady
		judged["message"] = fmt.Sprintf("the condition of readiness gate %q is not True", types[closed])
	case ready["reason"] == gatesNotReady && closed < 0 && isTrue(condition(status, string(corev1.ContainersReady))):
		judged["status"] = string(corev1.ConditionTrue)
		delete(judged, "reason")
		delete(judged, "message")
	default:
		return
	}
	judged["lastTransitionTime"] = now.UTC().Format(time.RFC3339)
	if before := condition(local, string(corev1.PodReady)); before["status"] == judged["status"] && before["lastTransitionTime"] != nil {
		judged["lastTransitionTime"] = before["lastTransitionTime"]
	}
	status["conditions"] = put(listOf(status["conditions"]), judged)
}

func condition(status map[string]any, kind string) map[string]any {
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

// put returns the conditions with one replaced or added.
func put(conditions []any, one map[string]any) []any {
	conditions = slices.Clone(conditions)
	for i, item := range conditions {
		if found, _ := item.(map[string]any); found["type"] == one["type"] {
			conditions[i] = one
			return conditions
		}
	}
	return append(conditions, one)
}

// said tells statements of a condition apart, "" of none. Fields that an API server may add say nothing.
func said(condition map[string]any) string {
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
