// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podscheduling

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// term is one alternative of a node affinity. It has the form that the API server stores, so that fields of newer API
// servers are preserved.
type term map[string]any

// The fields of a term that contain requirements. A node must meet the requirements in both fields.
const (
	expressions = "matchExpressions"
	fields      = "matchFields"
)

// isEmpty reports whether the term has no requirements. An empty term matches no nodes, in contrast to an empty label
// selector, which matches everything.
func (t term) isEmpty() bool {
	return len(t.requirementsOf(expressions)) == 0 && len(t.requirementsOf(fields)) == 0
}

func (t term) requirementsOf(field string) []any {
	requirements, _ := t[field].([]any)
	return requirements
}

// requirementKeys returns the requirements in a field as strings that can be compared.
func (t term) requirementKeys(field string) map[string]bool {
	keys := map[string]bool{}
	for _, requirement := range t.requirementsOf(field) {
		keys[requirementKey(requirement)] = true
	}
	return keys
}

// requirementKey returns a string that is the same for equivalent requirements. The order of values is ignored.
func requirementKey(requirement any) string {
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

// impliesTerm reports whether every node that matches t also matches other, because t contains all requirements of
// other.
func (t term) impliesTerm(other term) bool {
	if t.isEmpty() || other.isEmpty() {
		return false
	}
	for _, field := range []string{expressions, fields} {
		has := t.requirementKeys(field)
		for requirement := range other.requirementKeys(field) {
			if !has[requirement] {
				return false
			}
		}
	}
	return true
}

func (t term) isSame(other term) bool {
	return t.isEmpty() && other.isEmpty() || t.impliesTerm(other) && other.impliesTerm(t)
}

// combineWith returns a term that matches a node if both t and other match it.
func (t term) combineWith(other term) term {
	if t.isEmpty() || other.isEmpty() {
		return term{}
	}
	both := maps.Clone(t)
	for _, field := range []string{expressions, fields} {
		has := t.requirementKeys(field)
		requirements := slices.Clone(t.requirementsOf(field))
		for _, requirement := range other.requirementsOf(field) {
			if !has[requirementKey(requirement)] {
				requirements = append(requirements, requirement)
			}
		}
		if len(requirements) > 0 {
			both[field] = requirements
		}
	}
	return both
}

// combineTerms returns terms that match a node if it matches one of the pod's terms and one of ours. The pod's terms
// come first. A term that already implies one of ours is not changed, so a second call with the result changes nothing.
// This is needed because the API server may call the webhook twice for a pod.
func combineTerms(pods, ours []term) []term {
	var combined []term
	add := func(t term) {
		if !slices.ContainsFunc(combined, t.isSame) {
			combined = append(combined, t)
		}
	}
	for _, t := range pods {
		if t.isEmpty() || slices.ContainsFunc(ours, t.impliesTerm) {
			add(t)
			continue
		}
		for _, our := range ours {
			add(t.combineWith(our))
		}
	}
	return combined
}
