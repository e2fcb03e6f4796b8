// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// condition is one condition on the labels of a pod. With the operator NotIn, it has one value.
type condition struct {
	key      string
	operator metav1.LabelSelectorOperator
	values   string // joined by commas, sorted
}

// conjunction is a set of conditions that all hold.
type conjunction map[condition]bool

// maxComplementWork limits how many conditions are copied and compared for one complement, to about a second: consumers write the selectors.
const maxComplementWork = 1_000_000

// complement returns selectors that together select exactly the pods that no given selector selects. A label selector cannot express "without
// these two labels together", so that several may be needed. It returns at most limit: if more are needed, complete
// is false, and the result selects fewer pods. It selects none if the selectors are too many or too large to compute it.
func complement(selectors []metav1.LabelSelector, limit int) (result []metav1.LabelSelector, complete bool) {
	terms, complete := []conjunction{{}}, true
	work := 0
	for i := range selectors {
		var next []conjunction
		for _, negated := range negations(&selectors[i]) {
			for _, term := range terms {
				// Each is compared with all before it.
				if work += len(term) + len(negated) + len(next); work > maxComplementWork {
					return nil, false
				}
				both := maps.Clone(term)
				maps.Copy(both, negated)
				next = append(next, both)
			}
		}
		terms = absorb(next)
		if len(terms) > limit {
			terms, complete = terms[:limit], false
		}
	}
	for _, term := range terms {
		result = append(result, term.selector())
	}
	return result, complete
}

// negations returns, for each requirement of a selector, what holds of the pods that do not meet it.
func negations(selector *metav1.LabelSelector) (negated []conjunction) {
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		negated = append(negated, conjunction{{key, metav1.LabelSelectorOpNotIn, selector.MatchLabels[key]}: true})
	}
	for _, requirement := range selector.MatchExpressions {
		none := conjunction{}
		switch requirement.Operator {
		case metav1.LabelSelectorOpIn:
			for _, value := range requirement.Values {
				none[condition{requirement.Key, metav1.LabelSelectorOpNotIn, value}] = true
			}
		case metav1.LabelSelectorOpNotIn:
			values := slices.Compact(slices.Sorted(slices.Values(requirement.Values)))
			none[condition{requirement.Key, metav1.LabelSelectorOpIn, strings.Join(values, ",")}] = true
		case metav1.LabelSelectorOpExists:
			none[condition{requirement.Key, metav1.LabelSelectorOpDoesNotExist, ""}] = true
		case metav1.LabelSelectorOpDoesNotExist:
			none[condition{requirement.Key, metav1.LabelSelectorOpExists, ""}] = true
		default: // an operator that a later version of Kubernetes has added: it may select any pod
			continue
		}
		negated = append(negated, none)
	}
	return negated
}

// absorb removes conjunctions that others imply, and returns the rest, sorted by their number of conditions.
func absorb(terms []conjunction) (kept []conjunction) {
	slices.SortStableFunc(terms, func(a, b conjunction) int { return len(a) - len(b) })
	for _, term := range terms {
		if !slices.ContainsFunc(kept, func(wider conjunction) bool { return wider.impliedBy(term) }) {
			kept = append(kept, term)
		}
	}
	return kept
}

func (c conjunction) impliedBy(other conjunction) bool {
	for condition := range c {
		if !other[condition] {
			return false
		}
	}
	return true
}

// selector returns the label selector of the pods that meet all conditions. Equal conjunctions have equal selectors.
func (c conjunction) selector() metav1.LabelSelector {
	selector := metav1.LabelSelector{}
	excluded := map[string][]string{}
	for condition := range c {
		requirement := metav1.LabelSelectorRequirement{Key: condition.key, Operator: condition.operator}
		switch condition.operator {
		case metav1.LabelSelectorOpNotIn:
			excluded[condition.key] = append(excluded[condition.key], condition.values)
			continue
		case metav1.LabelSelectorOpIn:
			requirement.Values = strings.Split(condition.values, ",")
		case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
		}
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	for key, values := range excluded {
		slices.Sort(values)
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: values})
	}
	slices.SortFunc(selector.MatchExpressions, func(a, b metav1.LabelSelectorRequirement) int {
		return strings.Compare(a.Key+" "+string(a.Operator)+" "+strings.Join(a.Values, ","), b.Key+" "+string(b.Operator)+" "+strings.Join(b.Values, ","))
	})
	return selector
}
