// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/tenantlimits"
)

func selects(t *testing.T, selector *metav1.LabelSelector, pod labels.Set) bool {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	return parsed.Matches(pod)
}

// randomSelector returns a selector with requirements of all kinds on a few labels.
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

// TestComplement checks that a complement selects exactly the pods that are not selected by any of the selectors. An
// incomplete complement must select a subset of these pods.
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
			computed := newComplement(selectors, limit)
			result, complete := computed.selectors, computed.complete
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

// TestComplementOfReleases checks that the complement of the selectors that most charts use, with a name and the
// release, has at most two selectors.
func TestComplementOfReleases(t *testing.T) {
	t.Parallel()
	var selectors []metav1.LabelSelector
	for _, name := range []string{"web", "db", "cache", "queue", "worker"} {
		selectors = append(selectors, metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/instance": "shop"}})
	}
	result := newComplement(selectors, 2)
	assert.True(t, result.complete)
	assert.Len(t, result.selectors, 2)
	assert.Equal(t, result, newComplement(selectors, 2), "written once")
	none := newComplement([]metav1.LabelSelector{selectors[0], {}}, 2)
	assert.Empty(t, none.selectors, "all pods are selected")
	assert.True(t, none.complete)
}

// TestNamesOfSelectorsAreStable checks that, when a policy is added or removed, a policy name keeps its selector if the
// selector is still needed and other names are free.
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

// labelled returns a selector with count labels. Different prefixes give different labels.
func labelled(prefix string, count int) metav1.LabelSelector {
	selector := metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := range count {
		selector.MatchLabels[fmt.Sprintf("%s%d", prefix, i)] = "x"
	}
	return selector
}

// repeated returns the selectors of count policies.
func repeated(count int, selector func(i int) metav1.LabelSelector) (selectors []metav1.LabelSelector) {
	for i := range count {
		selectors = append(selectors, selector(i))
	}
	return selectors
}

// valued returns a selector with the given number of expressions, each with the given number of values.
func valued(prefix string, operator metav1.LabelSelectorOperator, expressions, values int) (selector metav1.LabelSelector) {
	for i := range expressions {
		requirement := metav1.LabelSelectorRequirement{Key: fmt.Sprintf("%s%d", prefix, i), Operator: operator}
		for j := range values {
			requirement.Values = append(requirement.Values, fmt.Sprintf("v%d", j))
		}
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	return selector
}

func release(i int) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprintf("web-%d", i), "instance": "shop"}}
}

// costlySelectors returns selectors that consumers could write to keep this cluster busy. Each of them is expensive for
// another reason.
func costlySelectors() map[string][]metav1.LabelSelector {
	exists := metav1.LabelSelectorRequirement{Key: "a", Operator: metav1.LabelSelectorOpExists}
	same := metav1.LabelSelector{MatchExpressions: slices.Repeat([]metav1.LabelSelectorRequirement{exists}, 21_000)}
	return map[string][]metav1.LabelSelector{
		"more than can be read":           {labelled("a", 100_000)},
		"many alternatives":               {labelled("a", 20_000)},
		"values of one expression":        {valued("a", metav1.LabelSelectorOpNotIn, 1, 100_000)},
		"the same again and again":        {same, same},
		"alternatives of alternatives":    {labelled("a", 300), labelled("b", 300), labelled("c", 3000)},
		"comparisons of long ones":        {labelled("a", 1200)},
		"comparisons of long expressions": {valued("a", metav1.LabelSelectorOpIn, 700, 60)},
		"copies of what is implied":       repeated(3000, func(i int) metav1.LabelSelector { return valued("same", metav1.LabelSelectorOpNotIn, 64, 1+i%3) }),
		"as many policies as allowed, each as large as allowed": repeated(500, func(i int) metav1.LabelSelector {
			return valued(fmt.Sprintf("p%d-", i), metav1.LabelSelectorOpIn, 64, 64)
		}),
		"one large policy among small ones": append(repeated(500, release), labelled("a", 20_000)),
	}
}

// TestComplementIsBounded checks that a consumer that writes many or large selectors gets no default egress for them,
// and does not slow down other consumers. A large number of small selectors is normal and must have no such effect.
func TestComplementIsBounded(t *testing.T) {
	t.Parallel()
	for what, selectors := range costlySelectors() {
		result := newComplement(selectors, 8)
		assert.True(t, result.costly, "%s: %d steps", what, result.steps)
		assert.Empty(t, result.selectors, what)
		assert.False(t, result.complete, what)
	}
	small := newComplement(repeated(500, release), 8)
	assert.Len(t, small.selectors, 2)
	assert.True(t, small.complete)
	assert.LessOrEqual(t, small.steps, maxComplementSteps/10)

	// The steps include at least the values that are read, and the words that are copied and compared.
	alternatives := 300
	result := newComplement([]metav1.LabelSelector{labelled("a", alternatives)}, alternatives)
	assert.False(t, result.costly)
	assert.Len(t, result.selectors, alternatives)
	assert.LessOrEqual(t, alternatives*conditionSteps+(alternatives+alternatives*(alternatives-1)/2)*(alternatives/64), result.steps)
}

// TestSelectorsOfComplementsAreSmall checks that the selectors that this cluster writes do not exceed etcd's limit,
// whatever the size of the consumer's selectors.
func TestSelectorsOfComplementsAreSmall(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("v", 60)
	result := newComplement(repeated(2000, func(i int) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprintf("%s%d", long[:50], i), "tier": "web"}}
	}), 8)
	assert.False(t, result.costly)
	assert.False(t, result.complete)
	require.Len(t, result.selectors, 1, "the one without the tier")
	assert.Equal(t, []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"web"}}}, result.selectors[0].MatchExpressions)
}

// TestPoliciesThatAreTheSameAreNotComparedAgain checks that unchanged policies are not compared again, because each
// reconciliation of a NamespaceMap needs the complements of all its namespaces. An Event about them is written only
// once.
func TestPoliciesThatAreTheSameAreNotComparedAgain(t *testing.T) {
	t.Parallel()
	recorder := events.NewFakeRecorder(10)
	c := NewController(nil, nil, recorder, Options{
		OwnRanges:      func() (ipmap.Ranges, error) { return nil, nil },
		RangesOfOthers: func(context.Context, string) (ipmap.Ranges, error) { return nil, nil },
	})
	computed := 0
	c.complements.compute = func(selectors []metav1.LabelSelector, limit int) complement {
		computed++
		return newComplement(selectors, limit)
	}
	nm := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "milan", UID: "nm"}}
	policies := []networkingv1.NetworkPolicy{
		{ObjectMeta: metav1.ObjectMeta{Name: "large", UID: "1", ResourceVersion: "1"}, Spec: networkingv1.NetworkPolicySpec{PodSelector: labelled("a", 1200), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "2", ResourceVersion: "2"}, Spec: networkingv1.NetworkPolicySpec{PodSelector: release(1), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}},
	}
	times := func(want int, why string) {
		t.Helper()
		for i := range 6 {
			for _, namespace := range []string{"shop-rome", "bank-rome"} {
				desired, err := c.egressPolicies(t.Context(), nm, tenantlimits.Limits{}, namespace, policies)
				require.NoError(t, err)
				require.NotEmpty(t, desired)
			}
			// Caches return objects in random order, so the order must not matter.
			policies[0], policies[len(policies)-1] = policies[len(policies)-1], policies[0]
			require.Equal(t, want, computed, "%s, time %d", why, i)
		}
	}
	times(2, "once for each namespace")
	require.Len(t, recorder.Events, 2, "one Event for each namespace")
	require.Contains(t, <-recorder.Events, "so many or so large")
	policies[0].ResourceVersion = "3"
	times(4, "a policy has changed")
	policies[1].UID = "4"
	times(6, "a policy was created again")
	policies = policies[:1]
	times(8, "a policy is gone")
	c.forget("bank-rome")
	times(9, "a namespace was created again")
	ofOthers := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: wire.EgressPolicyNames()[2]}}
	ofOthers.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	policies = append(policies, ofOthers)
	times(11, "there is one name less for the selectors")
}

// BenchmarkComplement measures the most expensive inputs, which exceed the maximum number of steps, and a typical
// input.
func BenchmarkComplement(b *testing.B) {
	inputs := costlySelectors()
	inputs["usual"] = repeated(500, release)
	for _, what := range slices.Sorted(maps.Keys(inputs)) {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				newComplement(inputs[what], 8)
			}
		})
	}
}
