// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podscheduling

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// term is one alternative of a node affinity. It has the stored form of the API, so that fields of newer API servers
// are kept.
type term map[string]any

// The fields of a term that contain requirements. A node must meet the requirements of both fields.
const (
	expressions = "matchExpressions"
	fields      = "matchFields"
)

// isEmpty reports whether the term has no requirements. An empty term matches no node, unlike an empty label
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

// requirementKey returns a string that is equal for equivalent requirements. The order of the values does not matter.
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

// impliesTerm reports whether every node that matches t also matches other, because t has all of its requirements.
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

// combineWith returns a term that matches exactly the nodes that match both t and other.
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

// combineTerms returns terms that match the nodes that match one of the pod's terms and one of ours. The pod's terms
// come first, and a term that already implies one of ours stays unchanged. Therefore a second call with the result
// changes nothing, which matters because the API server may call the webhook twice for one pod.
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
