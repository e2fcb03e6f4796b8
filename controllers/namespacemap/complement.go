// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxComplementSteps limits the work for one complement, because consumers write the selectors. A step takes about
	// a nanosecond and at most eight bytes of memory.
	maxComplementSteps = 2_000_000
	// conditionSteps is the cost of reading one condition, which is also hashed and stored.
	conditionSteps = 32
	// maxSelectorBytes limits the size of the keys and values in a selector that this cluster writes, because etcd
	// rejects objects of more than 1.5 MiB.
	maxSelectorBytes = 64 << 10
)

// complement is the set of pods that are not selected by any selector in a list.
type complement struct {
	// selectors select exactly the pods of the complement if complete is true. Otherwise, they select only some of
	// these pods.
	selectors []metav1.LabelSelector
	complete  bool
	// costly is true if the selectors were not computed because the computation takes more than maxComplementSteps.
	costly bool
	// steps is the number of steps after which the computation ended or was abandoned.
	steps int
}

// newComplement returns the complement of selectors. It may consist of several selectors, because a single label
// selector cannot exclude only the pods that have two labels together. At most limit selectors are returned.
func newComplement(selectors []metav1.LabelSelector, limit int) complement {
	b := complementBuilder{numbers: map[condition]int{}}
	negated := make([][][]int, len(selectors))
	for i := range selectors {
		if negated[i] = b.negations(&selectors[i]); b.exhausted() {
			return complement{costly: true, steps: b.steps}
		}
	}
	terms, complete := []conjunction{b.newConjunction(conjunction{}, nil)}, true
	for _, alternatives := range negated {
		if terms = b.combineTerms(terms, alternatives); b.exhausted() {
			return complement{costly: true, steps: b.steps}
		}
		if len(terms) > limit {
			terms, complete = terms[:limit], false
		}
	}
	result := complement{complete: complete, steps: b.steps}
	for _, term := range terms {
		if selector, ok := b.selectorOf(term); ok {
			result.selectors = append(result.selectors, selector)
		} else {
			result.complete = false
		}
	}
	return result
}

// condition is one condition on the labels of a pod. A condition with the operator NotIn has exactly one value.
type condition struct {
	key      string
	operator metav1.LabelSelectorOperator
	values   string // values of the requirement, sorted and joined by commas
}

// conjunction is a set of conditions that must all be met.
type conjunction struct {
	members []uint64 // set of the numbers of conditions, with one bit for each number
	size    int
}

// complementBuilder assigns numbers to the conditions of one complement, and counts the steps.
type complementBuilder struct {
	numbers    map[condition]int
	conditions []condition
	steps      int
}

// spend adds to the number of steps, and reports whether the limit is not exceeded.
func (b *complementBuilder) spend(steps int) bool {
	b.steps += steps
	return !b.exhausted()
}

func (b *complementBuilder) exhausted() bool { return b.steps > maxComplementSteps }

// numberOf returns the number of a condition.
func (b *complementBuilder) numberOf(c condition) int {
	n, known := b.numbers[c]
	if !known {
		n = len(b.conditions)
		b.numbers[c], b.conditions = n, append(b.conditions, c)
	}
	return n
}

// negations returns, for each requirement of a selector, the conditions that a pod meets if it does not meet the
// requirement.
func (b *complementBuilder) negations(selector *metav1.LabelSelector) (negated [][]int) {
	if !b.spend(conditionSteps * len(selector.MatchLabels)) {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		negated = append(negated, []int{b.numberOf(condition{key, metav1.LabelSelectorOpNotIn, selector.MatchLabels[key]})})
	}
	for _, requirement := range selector.MatchExpressions {
		if !b.spend(conditionSteps * (1 + len(requirement.Values))) {
			return nil
		}
		var none []int
		switch requirement.Operator {
		case metav1.LabelSelectorOpIn:
			for _, value := range requirement.Values {
				none = append(none, b.numberOf(condition{requirement.Key, metav1.LabelSelectorOpNotIn, value}))
			}
		case metav1.LabelSelectorOpNotIn:
			values := slices.Compact(slices.Sorted(slices.Values(requirement.Values)))
			none = append(none, b.numberOf(condition{requirement.Key, metav1.LabelSelectorOpIn, strings.Join(values, ",")}))
		case metav1.LabelSelectorOpExists:
			none = append(none, b.numberOf(condition{requirement.Key, metav1.LabelSelectorOpDoesNotExist, ""}))
		case metav1.LabelSelectorOpDoesNotExist:
			none = append(none, b.numberOf(condition{requirement.Key, metav1.LabelSelectorOpExists, ""}))
		default: // an operator of a newer Kubernetes version, which may select any pod
			continue
		}
		negated = append(negated, none)
	}
	return negated
}

// newConjunction returns the union of the conditions of base and the added conditions.
func (b *complementBuilder) newConjunction(base conjunction, added []int) conjunction {
	both := conjunction{members: make([]uint64, (len(b.conditions)+63)/64)}
	copy(both.members, base.members)
	for _, number := range added {
		both.members[number/64] |= 1 << (number % 64)
	}
	for _, word := range both.members {
		both.size += bits.OnesCount64(word)
	}
	return both
}

// combineTerms returns the conjunctions that are met if one of the terms and one of the alternatives are met, sorted by
// the number of conditions. A conjunction that implies another one of the result is omitted.
func (b *complementBuilder) combineTerms(terms []conjunction, alternatives [][]int) (kept []conjunction) {
	words := 1 + len(b.conditions)/64
	combined := len(terms) * len(alternatives)
	if !b.spend(combined * (words + bits.Len(uint(combined)))) { // this is the cost of copying and sorting
		return nil
	}
	all := make([]conjunction, 0, combined)
	for _, alternative := range alternatives {
		if !b.spend(len(alternative) * len(terms)) {
			return nil
		}
		for _, term := range terms {
			all = append(all, b.newConjunction(term, alternative))
		}
	}
	slices.SortStableFunc(all, func(a, b conjunction) int { return a.size - b.size })
	for _, term := range all {
		implied := false
		for i := 0; i < len(kept) && !implied; i++ {
			if !b.spend(words) {
				return nil
			}
			implied = kept[i].impliedBy(term)
		}
		if !implied {
			kept = append(kept, term)
		}
	}
	return kept
}

func (c conjunction) impliedBy(other conjunction) bool {
	for i, word := range c.members {
		if word&^other.members[i] != 0 {
			return false
		}
	}
	return true
}

// selectorOf returns the label selector for the pods that meet all conditions, unless the selector would be too large.
// Equal conjunctions have equal selectors.
func (b *complementBuilder) selectorOf(c conjunction) (selector metav1.LabelSelector, ok bool) {
	excluded := map[string][]string{}
	size := 0
	for number, condition := range b.conditions {
		if c.members[number/64]&(1<<(number%64)) == 0 {
			continue
		}
		if size += len(condition.key) + len(condition.values); size > maxSelectorBytes {
			return metav1.LabelSelector{}, false
		}
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
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(string(a.Operator), string(b.Operator)), slices.Compare(a.Values, b.Values))
	})
	return selector, true
}
