// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// containersOf maps each list of container statuses to the field of the spec with the containers. Ephemeral containers
// are not included.
var containersOf = map[string]string{"initContainerStatuses": "initContainers", "containerStatuses": "containers"}

// ephemeralStatuses is the field with the statuses of ephemeral containers.
const ephemeralStatuses = "ephemeralContainerStatuses"

// AdaptStatus adapts a status from the provider so that this cluster's API server accepts it. The validation of API
// servers is not designed for statuses from other clusters.
//
//   - The quality-of-service class stays as it is, because the field is immutable and the provider may compute
//     another class.
//   - The nominated node is removed, because the API server rejects it on a bound pod.
//   - A container that has terminated stays terminated unless its policy permits a restart. On the provider, the
//     container may run again, because the provider's pod was recreated.
//   - Statuses of containers that the local pod does not have, such as sidecars that the provider injects, are
//     removed, because clients compare the number of statuses with the spec.
//
// local is the current status of the pod in this cluster, and spec is its spec.
func AdaptStatus(next, local, spec map[string]any) map[string]any {
	settled := maps.Clone(next)
	delete(settled, "nominatedNodeName")
	delete(settled, "qosClass")
	if class, ok := local["qosClass"]; ok {
		settled["qosClass"] = class
	}
	all := restartsAll(spec)
	for _, list := range containerLists {
		dropUndeclared(settled, spec, list)
		if all && containersOf[list] != "" {
			continue
		}
		keepEnded(settled, local, spec, list)
	}
	return settled
}

// dropUndeclared removes statuses from the list if their containers are not in the spec.
func dropUndeclared(settled, spec map[string]any, list string) {
	field := containersOf[list]
	if list == ephemeralStatuses {
		field = ephemeralContainers
	}
	declared := byName(spec[field])
	foreign := func(item any) bool {
		entry, _ := item.(map[string]any)
		name, _ := entry["name"].(string)
		return declared[name] == nil
	}
	items := listOf(settled[list])
	if !slices.ContainsFunc(items, foreign) {
		return
	}
	if items = slices.DeleteFunc(slices.Clone(items), foreign); len(items) == 0 {
		delete(settled, list)
		return
	}
	settled[list] = items
}

func keepEnded(settled, local, spec map[string]any, list string) {
	ended := endedForGood(local, spec, list)
	if len(ended) == 0 {
		return
	}
	items := listOf(settled[list])
	kept := make([]any, 0, len(items)+len(ended))
	for _, item := range items {
		entry, _ := item.(map[string]any)
		name, _ := entry["name"].(string)
		if old := ended[name]; old != nil && exitCode(entry) == nil {
			item = old
		}
		delete(ended, name)
		kept = append(kept, item)
	}
	for _, item := range listOf(local[list]) {
		entry, _ := item.(map[string]any)
		if name, _ := entry["name"].(string); ended[name] != nil {
			kept = append(kept, item)
		}
	}
	settled[list] = kept
}

// endedForGood returns the containers in a list that have terminated and will not be restarted.
func endedForGood(local, spec map[string]any, list string) map[string]map[string]any {
	policy, _ := spec["restartPolicy"].(string)
	containers := byName(spec[containersOf[list]])
	ended := byName(local[list])
	maps.DeleteFunc(ended, func(name string, status map[string]any) bool {
		code := exitCode(status)
		undeclared := containers[name] == nil && list != ephemeralStatuses
		return code == nil || undeclared || mayRestart(containers[name], policy, *code)
	})
	return ended
}

// mayRestart reports whether a container that has terminated with this exit code may run again. The first restart rule
// that matches the code decides. If no rule matches, the restart policy of the container decides, or else the restart
// policy of the pod. Ephemeral containers are never restarted. For them, container is nil.
func mayRestart(container map[string]any, policy string, code int64) bool {
	if container == nil {
		return false
	}
	if own, _ := container["restartPolicy"].(string); own != "" {
		for _, item := range listOf(container["restartPolicyRules"]) {
			if rule, _ := item.(map[string]any); matchesCode(rule, code) {
				if isRestart(rule) {
					return true
				}
				break
			}
		}
		policy = own
	}
	switch corev1.RestartPolicy(policy) {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	}
	return true
}

func matchesCode(rule map[string]any, code int64) bool {
	codes, _ := rule["exitCodes"].(map[string]any)
	listed := slices.ContainsFunc(listOf(codes["values"]), func(value any) bool {
		n, ok := wholeNumber(value)
		return ok && n == code
	})
	switch codes["operator"] {
	case string(corev1.ContainerRestartRuleOnExitCodesOpIn):
		return listed
	case string(corev1.ContainerRestartRuleOnExitCodesOpNotIn):
		return !listed
	}
	return false
}

func isRestart(rule map[string]any) bool {
	return rule["action"] == string(corev1.ContainerRestartRuleActionRestart) || rule["action"] == string(corev1.ContainerRestartRuleActionRestartAllContainers)
}

// restartsAll reports whether the termination of one container may restart all containers, regardless of their own
// restart policies.
func restartsAll(spec map[string]any) bool {
	for _, list := range containersOf {
		for _, item := range listOf(spec[list]) {
			container, _ := item.(map[string]any)
			for _, item := range listOf(container["restartPolicyRules"]) {
				if rule, _ := item.(map[string]any); rule["action"] == string(corev1.ContainerRestartRuleActionRestartAllContainers) {
					return true
				}
			}
		}
	}
	return false
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

// exitCode returns the exit code of a container, or nil if the container has not terminated.
func exitCode(container map[string]any) *int64 {
	state, _ := container["state"].(map[string]any)
	terminated, ok := state["terminated"].(map[string]any)
	if !ok {
		return nil
	}
	code, _ := wholeNumber(terminated["exitCode"])
	return &code
}

// wholeNumber returns the value of an integer in an unstructured object. ok is false for any other value.
func wholeNumber(value any) (int64, bool) {
	switch n := value.(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), true
	default:
		return 0, false
	}
}
