// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podscheduling

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// term is one alternative of a node affinity in its stored form, so that fields of newer API servers are kept.
type term map[string]any

// The fields of a term that contain requirements. A node must meet all of them.
const (
	expressions = "matchExpressions"
	fields      = "matchFields"
)

// empty reports whether the term has no requirements. Unlike an empty label selector, it matches no node.
func (t term) empty() bool {
	return len(t.list(expressions)) == 0 && len(t.list(fields)) == 0
}

func (t term) list(field string) []any {
	requirements, _ := t[field].([]any)
	return requirements
}

// keys returns the requirements of a field as comparable keys.
func (t term) keys(field string) map[string]bool {
	keys := map[string]bool{}
	for _, requirement := range t.list(field) {
		keys[key(requirement)] = true
	}
	return keys
}

// key returns a string that is equal for equivalent requirements. The order of the values does not matter.
func key(requirement any) string {
	if content, ok := requirement.(map[string]any); ok {
		if values, ok := content["values"].([]any); ok {
			content = maps.Clone(content)
			sorted := make([]string, 0, len(values))
			for _, value := range values {
				sorted = append(sorted, fmt.Sprint(value))
			}
			slices.Sort(sorted)
			content["values"] = sorted
			requirement = content
		}
	}
	text, err := json.Marshal(requirement)
	if err != nil {
		return fmt.Sprintf("%#v", requirement)
	}
	return string(text)
}

// implies reports whether every node that matches t also matches other, because t has all of its requirements.
func (t term) implies(other term) bool {
	if t.empty() || other.empty() {
		return false
	}
	for _, field := range []string{expressions, fields} {
		has := t.keys(field)
		for requirement := range other.keys(field) {
			if !has[requirement] {
				return false
			}
		}
	}
	return true
}

func (t term) same(other term) bool {
	return t.empty() && other.empty() || t.implies(other) && other.implies(t)
}

// and returns a term that matches the nodes that match both t and other.
func (t term) and(other term) term {
	if t.empty() || other.empty() {
		return term{}
	}
	both := maps.Clone(t)
	for _, field := range []string{expressions, fields} {
		has := t.keys(field)
		requirements := slices.Clone(t.list(field))
		for _, requirement := range other.list(field) {
			if !has[key(requirement)] {
				requirements = append(requirements, requirement)
			}
		}
		if len(requirements) > 0 {
			both[field] = requirements
		}
	}
	return both
}

// combine returns terms that match the nodes that match one term of the pod and one of ours. The pod's terms come first,
// and a term that already implies one of ours stays unchanged. So combining the result again changes nothing, which
// matters because the API server may call the webhook twice for one pod.
func combine(pods, ours []term) []term {
	var combined []term
	add := func(t term) {
		if !slices.ContainsFunc(combined, t.same) {
			combined = append(combined, t)
		}
	}
	for _, t := range pods {
		if t.empty() || slices.ContainsFunc(ours, t.implies) {
			add(t)
			continue
		}
		for _, our := range ours {
			add(t.and(our))
		}
	}
	return combined
}
