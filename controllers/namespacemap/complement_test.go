// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/refract-project/refract/api/wire"
)

func selects(t *testing.T, selector *metav1.LabelSelector, pod labels.Set) bool {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	return parsed.Matches(pod)
}

// randomSelector has requirements of every kind, about a few labels.
func randomSelector(random *rand.Rand) metav1.LabelSelector {
	selector := metav1.LabelSelector{}
	value := func() string { return []string{"", "x", "y"}[random.IntN(3)] }
	for _, key := range []string{"a", "b", "c"} {
		switch random.IntN(9) {
		case 0:
			selector.MatchLabels = map[string]string{key: value()}
		case 1:
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value(), value()}})
		case 2:
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{value(), value()}})
		case 3:
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists})
		case 4:
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist})
		}
	}
	return selector
}

// A complement selects the pods that no selector selects, and no others; a part of it selects no others either.
func TestComplement(t *testing.T) {
	t.Parallel()
	var pods []labels.Set
	values := []string{"absent", "", "x", "y"}
	for _, a := range values {
		for _, b := range values {
			for _, c := range values {
				pod := labels.Set{}
				for key, value := range map[string]string{"a": a, "b": b, "c": c} {
					if value != "absent" {
						pod[key] = value
					}
				}
				pods = append(pods, pod)
			}
		}
	}
	parts := 0
	for seed := range uint64(600) {
		random := rand.New(rand.NewPCG(seed, 1))
		selectors := make([]metav1.LabelSelector, random.IntN(5))
		for i := range selectors {
			selectors[i] = randomSelector(random)
		}
		for _, limit := range []int{2, 1000} {
			result, complete := complement(selectors, limit)
			require.LessOrEqual(t, len(result), limit)
			if !complete {
				parts++
				require.Equal(t, 2, limit)
			}
			for _, pod := range pods {
				selected, outside := false, false
				for i := range selectors {
					selected = selected || selects(t, &selectors[i], pod)
				}
				for i := range result {
					outside = outside || selects(t, &result[i], pod)
				}
				if outside == selected && (outside || complete) {
					t.Fatalf("seed %d: pod %v is selected: %t, by the complement: %t\n%v\n%v", seed, pod, selected, outside, selectors, result)
				}
			}
		}
	}
	assert.Positive(t, parts)
}

// The charts of most projects select by a name and by the release, and need no more than two selectors.
func TestComplementOfReleases(t *testing.T) {
	t.Parallel()
	var selectors []metav1.LabelSelector
	for _, name := range []string{"web", "db", "cache", "queue", "worker"} {
		selectors = append(selectors, metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/instance": "shop"}})
	}
	result, complete := complement(selectors, 2)
	assert.True(t, complete)
	assert.Len(t, result, 2)
	again, _ := complement(selectors, 2)
	assert.Equal(t, result, again, "written once")
	none, complete := complement([]metav1.LabelSelector{selectors[0], {}}, 2)
	assert.Empty(t, none, "all pods are selected")
	assert.True(t, complete)
}

// A policy that is added or removed changes no selector of a name that selects pods still to be selected, while there are other names.
func TestNamesOfSelectorsAreStable(t *testing.T) {
	t.Parallel()
	names := wire.EgressPolicyNames()[1:]
	without := func(app string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: app, Operator: metav1.LabelSelectorOpDoesNotExist}}}
	}
	var existing []networkingv1.NetworkPolicy
	assign := func(apps ...string) map[string]metav1.LabelSelector {
		var selectors []metav1.LabelSelector
		for _, app := range apps {
			selectors = append(selectors, without(app))
		}
		named := nameSelectors(selectors, names, existing)
		existing = nil
		for name, selector := range named {
			existing = append(existing, networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.NetworkPolicySpec{PodSelector: selector}})
		}
		return named
	}
	type named = map[string]metav1.LabelSelector
	assert.Equal(t, named{names[0]: noPods}, assign())
	assert.Equal(t, named{names[0]: without("b")}, assign("b"))
	assert.Equal(t, named{names[0]: without("b"), names[1]: without("a")}, assign("a", "b"))
	assert.Equal(t, named{names[0]: noPods, names[1]: without("a"), names[2]: without("c")}, assign("a", "c"))
	assert.Equal(t, named{names[0]: without("d"), names[1]: without("a")}, assign("d", "a"))
	assert.Equal(t, named{names[0]: noPods, names[2]: without("e")}, assign("e"))
	assert.Len(t, assign("1", "2", "3", "4", "5", "6", "7", "8"), len(names), "all names are used")

	order := func(names ...string) (result []string) {
		var desired []*networkingv1.NetworkPolicy
		for _, name := range names {
			desired = append(desired, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.NetworkPolicySpec{PodSelector: without("x")}})
		}
		for _, policy := range inOrder(desired, existing[:1]) {
			result = append(result, policy.Name)
		}
		return result
	}
	first := existing[0].Name
	assert.Equal(t, []string{wire.EgressIsolationPolicy, "new", first}, order(first, "new", wire.EgressIsolationPolicy), "what selects more pods comes before what selects fewer")
}

// A consumer that writes many or large selectors gets no default egress for them, and takes no time of the others. Many small ones are usual.
func TestComplementIsBounded(t *testing.T) {
	t.Parallel()
	large, second, small := metav1.LabelSelector{MatchLabels: map[string]string{}}, metav1.LabelSelector{MatchLabels: map[string]string{}}, []metav1.LabelSelector(nil)
	for i := range 20_000 {
		large.MatchLabels[fmt.Sprintf("a%d", i)], second.MatchLabels[fmt.Sprintf("b%d", i)] = "x", "x"
	}
	for i := range 500 {
		small = append(small, metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprintf("web-%d", i), "instance": "shop"}})
	}
	begin := time.Now()
	for _, selectors := range [][]metav1.LabelSelector{{large}, {large, second}, slices.Concat(small, []metav1.LabelSelector{large})} {
		result, complete := complement(selectors, 8)
		assert.Empty(t, result)
		assert.False(t, complete)
	}
	assert.Less(t, time.Since(begin), 10*time.Second)
	result, complete := complement(small, 8)
	assert.Len(t, result, 2)
	assert.True(t, complete)
}
