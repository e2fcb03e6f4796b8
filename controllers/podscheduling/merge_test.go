// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podscheduling

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/yaml"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

const (
	local  = offloading.LocalPodOffloadingStrategyType
	remote = offloading.RemotePodOffloadingStrategyType
	both   = offloading.LocalAndRemotePodOffloadingStrategyType
)

// apply applies the webhook's patch to an object, and returns the result.
func apply(t *testing.T, raw []byte, spec *offloading.NamespaceOffloadingSpec) []byte {
	t.Helper()
	p, err := decodePod(raw)
	require.NoError(t, err)
	where, err := placementOf(spec)
	require.NoError(t, err)
	patch, err := jsonpatch.DecodePatch([]byte(p.patchFor(where).String()))
	require.NoError(t, err)
	patched, err := patch.Apply(raw)
	require.NoErrorf(t, err, "applying %s to %s", p.patchFor(where), raw)
	return patched
}

// asJSON converts a pod, or a part of a pod, from YAML to JSON.
func asJSON(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	return raw
}

func TestStrategySelectorAndExistingAffinity(t *testing.T) {
	const (
		north      = `[{matchExpressions: [{key: region, operator: In, values: [north]}]}]`
		northOrGPU = `[{matchExpressions: [{key: region, operator: In, values: [north]}]}, {matchExpressions: [{key: gpu, operator: Exists}]}]`
		tolerates  = `tolerations: [{key: virtual-node.liqo.io/not-allowed, operator: Exists, effect: NoExecute}]`
		isVirtual  = `{key: liqo.io/type, operator: In, values: [virtual-node]}`
		isLocal    = `{key: liqo.io/type, operator: NotIn, values: [virtual-node]}`
	)
	required := func(terms string) string {
		return `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: ` + terms + `}}}`
	}
	for name, tc := range map[string]struct {
		strategy       offloading.PodOffloadingStrategyType
		selector       string
		pod, wantSpecs string // wantSpecs contains lines that the resulting spec must have in YAML
	}{
		"Local":                  {local, ``, ``, ``},
		"Local with a selector":  {local, north, required(northOrGPU), required(northOrGPU)},
		"LocalAndRemote":         {both, ``, ``, tolerates},
		"the default":            {"", ``, ``, tolerates},
		"Remote":                 {remote, ``, ``, tolerates + "\n" + required(`[{matchExpressions: [`+isVirtual+`]}]`)},
		"Remote with a selector": {remote, north, ``, tolerates + "\n" + required(`[{matchExpressions: [{key: region, operator: In, values: [north]}, `+isVirtual+`]}]`)},
		"LocalAndRemote with a selector": {both, northOrGPU, ``, tolerates + "\n" + required(
			`[{matchExpressions: [{key: region, operator: In, values: [north]}]}, {matchExpressions: [{key: gpu, operator: Exists}]}, {matchExpressions: [`+isLocal+`]}]`)},
		"what the pod requires is combined": {both, north, required(`[{matchExpressions: [{key: ssd, operator: Exists}]}]`), tolerates + "\n" + required(
			`[{matchExpressions: [{key: ssd, operator: Exists}, {key: region, operator: In, values: [north]}]}, {matchExpressions: [{key: ssd, operator: Exists}, `+isLocal+`]}]`)},
		"each of its terms with each of ours": {remote, northOrGPU, required(`[{matchExpressions: [{key: a, operator: Exists}]}, {matchExpressions: [{key: b, operator: Exists}]}]`),
			tolerates + "\n" + required(`[
				{matchExpressions: [{key: a, operator: Exists}, {key: region, operator: In, values: [north]}, `+isVirtual+`]},
				{matchExpressions: [{key: a, operator: Exists}, {key: gpu, operator: Exists}, `+isVirtual+`]},
				{matchExpressions: [{key: b, operator: Exists}, {key: region, operator: In, values: [north]}, `+isVirtual+`]},
				{matchExpressions: [{key: b, operator: Exists}, {key: gpu, operator: Exists}, `+isVirtual+`]}]`)},
		"the node of a DaemonSet's pod is kept": {remote, ``, required(`[{matchFields: [{key: metadata.name, operator: In, values: [cloud]}]}]`),
			tolerates + "\n" + required(`[{matchFields: [{key: metadata.name, operator: In, values: [cloud]}], matchExpressions: [`+isVirtual+`]}]`)},
		"a term that is strict enough stays": {both, north, required(`[{matchExpressions: [{key: region, operator: In, values: [north]}, {key: ssd, operator: Exists}]}]`),
			tolerates + "\n" + required(`[{matchExpressions: [{key: region, operator: In, values: [north]}, {key: ssd, operator: Exists}]}]`)},
		"terms that say the same are one": {remote, ``, required(`[{matchExpressions: [{key: a, operator: In, values: [x, y]}]}, {matchExpressions: [{key: a, operator: In, values: [y, x]}]}]`),
			tolerates + "\n" + required(`[{matchExpressions: [{key: a, operator: In, values: [x, y]}, `+isVirtual+`]}]`)},
		"an empty term of the pod matches nothing, still": {remote, ``, required(`[{}]`), tolerates + "\n" + required(`[{}]`)},
		"an empty term beside another": {remote, ``, required(`[{}, {matchExpressions: [{key: a, operator: Exists}]}]`),
			tolerates + "\n" + required(`[{}, {matchExpressions: [{key: a, operator: Exists}, `+isVirtual+`]}]`)},
		"an empty selector term selects nothing, remote": {remote, `[{}]`, ``, tolerates + "\n" + required(`[{}]`)},
		"an empty selector term selects nothing, both":   {both, `[{}]`, ``, tolerates + "\n" + required(`[{matchExpressions: [`+isLocal+`]}]`)},
		"a selector that repeats itself": {remote, `[{matchExpressions: [{key: gpu, operator: Exists}, ` + isVirtual + `]}, {matchExpressions: [{key: gpu, operator: Exists}]}]`, ``,
			tolerates + "\n" + required(`[{matchExpressions: [{key: gpu, operator: Exists}, `+isVirtual+`]}]`)},
		"an empty selector term beside another":                    {remote, `[{}, {matchExpressions: [{key: gpu, operator: Exists}]}]`, ``, tolerates + "\n" + required(`[{matchExpressions: [{key: gpu, operator: Exists}, `+isVirtual+`]}]`)},
		"no term at all is for the API server to refuse":           {remote, ``, required(`[]`), tolerates + "\n" + required(`[]`)},
		"null is as good as absent":                                {remote, ``, "tolerations: null\naffinity: {nodeAffinity: null}", tolerates + "\n" + required(`[{matchExpressions: [`+isVirtual+`]}]`)},
		"other tolerations stay":                                   {both, ``, `tolerations: [{key: a, operator: Exists}]`, `tolerations: [{key: a, operator: Exists}, {key: virtual-node.liqo.io/not-allowed, operator: Exists, effect: NoExecute}]`},
		"who tolerates virtual nodes already":                      {both, ``, tolerates, tolerates},
		"who tolerates everything":                                 {both, ``, `tolerations: [{operator: Exists}]`, `tolerations: [{operator: Exists}]`},
		"who tolerates them for a while":                           {both, ``, `tolerations: [{key: virtual-node.liqo.io/not-allowed, operator: Exists, tolerationSeconds: 5}]`, `tolerations: [{key: virtual-node.liqo.io/not-allowed, operator: Exists, tolerationSeconds: 5}]`},
		"a toleration of the other effect does not let the pod in": {both, ``, `tolerations: [{key: virtual-node.liqo.io/not-allowed, operator: Exists, effect: NoSchedule}]`, `tolerations: [{key: virtual-node.liqo.io/not-allowed, operator: Exists, effect: NoSchedule}, {key: virtual-node.liqo.io/not-allowed, operator: Exists, effect: NoExecute}]`},
		"preferences, pod affinity and what nobody knows stay": {remote, ``, `
future: {deep: [1, 9007199254740993]}
affinity:
  future: 9007199254740993
  podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]
    requiredDuringSchedulingIgnoredDuringExecution: {future: true, nodeSelectorTerms: [{future: 9007199254740993, matchExpressions: [{key: a, operator: Exists, future: x}]}]}`,
			tolerates + `
future: {deep: [1, 9007199254740993]}
affinity:
  future: 9007199254740993
  podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]
    requiredDuringSchedulingIgnoredDuringExecution: {future: true, nodeSelectorTerms: [{future: 9007199254740993, matchExpressions: [{key: a, operator: Exists, future: x}, ` + isVirtual + `]}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &offloading.NamespaceOffloadingSpec{PodOffloadingStrategy: tc.strategy}
			if tc.selector != "" {
				require.NoError(t, json.Unmarshal(asJSON(t, `nodeSelectorTerms: `+tc.selector), &spec.ClusterSelector))
			}
			raw := podWith(t, tc.pod)
			once := apply(t, raw, spec)
			if diff := cmp.Diff(content(t, podWith(t, tc.wantSpecs)), content(t, once)); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			if twice := apply(t, once, spec); string(twice) != string(once) {
				t.Errorf("asked twice, the webhook changes the pod again:\n%s\n%s", once, twice)
			}
		})
	}
}

func podWith(t *testing.T, spec string) []byte {
	t.Helper()
	return asJSON(t, "kind: Pod\nspec:\n  containers: []\n  "+strings.ReplaceAll(spec, "\n", "\n  "))
}

// content decodes JSON without changing the notation of numbers.
func content(t *testing.T, raw []byte) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	var v any
	require.NoError(t, decoder.Decode(&v))
	return v
}

func TestMalformedSelectorsNameTheRequirement(t *testing.T) {
	for selector, want := range map[string]string{
		`[{matchExpressions: [{key: a, operator: Is, values: [b]}]}]`:                               `nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Is"`,
		`[{matchExpressions: [{key: a, operator: In}]}]`:                                            "for 'in', 'notin' operators, values set can't be empty",
		`[{matchExpressions: [{key: "a b", operator: Exists}]}]`:                                    "key",
		`[{matchFields: [{key: metadata.name, operator: In, values: [a, b]}]}]`:                     "must have one element",
		`[{matchExpressions: [{key: a, operator: Exists}], matchFields: [{key: a, operator: In}]}]`: `nodeSelectorTerms[0].matchFields[0].key: "a" is not metadata.name`,
	} {
		spec := &offloading.NamespaceOffloadingSpec{PodOffloadingStrategy: remote}
		require.NoError(t, json.Unmarshal(asJSON(t, `nodeSelectorTerms: `+selector), &spec.ClusterSelector))
		if _, err := placementOf(spec); err == nil || !strings.HasPrefix(err.Error(), "clusterSelector: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want one with %q", selector, err, want)
		}
	}
	if _, err := placementOf(&offloading.NamespaceOffloadingSpec{PodOffloadingStrategy: "Anywhere"}); err == nil || !strings.Contains(err.Error(), `"Anywhere" is none of`) {
		t.Errorf("error = %v", err)
	}
}

// TestChangedPodsMatchWhatPodAndNamespaceAllow checks the result with Kubernetes' own matching: a node must match the
// changed pod if and only if it matches the original pod and the namespace is offloaded to it.
func TestChangedPodsMatchWhatPodAndNamespaceAllow(t *testing.T) {
	const seed = 17
	r := rand.New(rand.NewPCG(seed, seed))
	var nodes []*corev1.Node
	for i := range 32 {
		labels := map[string]string{}
		for bit, label := range []string{"a", "b", "c"} {
			if i>>bit&1 == 1 {
				labels[label] = []string{"x", "y"}[i>>4]
			}
		}
		if i>>3&1 == 1 {
			labels["liqo.io/type"] = "virtual-node"
		}
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), Labels: labels}})
	}
	changed := 0
	for range 300 {
		before := &corev1.Pod{}
		if terms := randomTerms(r); len(terms) > 0 {
			before.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
		}
		spec := &offloading.NamespaceOffloadingSpec{
			PodOffloadingStrategy: []offloading.PodOffloadingStrategyType{local, remote, both}[r.IntN(3)],
			ClusterSelector:       corev1.NodeSelector{NodeSelectorTerms: randomTerms(r)},
		}
		raw, err := json.Marshal(before)
		require.NoError(t, err)
		patched := apply(t, raw, spec)
		after := &corev1.Pod{}
		require.NoError(t, json.Unmarshal(patched, after))
		if string(apply(t, patched, spec)) != string(patched) {
			t.Fatalf("%s is changed again under %+v", patched, spec)
		}
		for _, node := range nodes {
			want := matches(t, before, node) && allowed(t, spec, node)
			if got := matches(t, after, node); got != want {
				t.Fatalf("node %v takes %s: %t, want %t; before: %s, spec: %+v", node.Labels, patched, got, want, raw, spec)
			}
			if !want && matches(t, before, node) {
				changed++
			}
		}
	}
	if changed < 250 {
		t.Errorf("only %d pairs of pod and node were kept apart: the test proves little", changed)
	}
}

func matches(t *testing.T, pod *corev1.Pod, node *corev1.Node) bool {
	t.Helper()
	ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	require.NoError(t, err)
	return ok
}

// allowed is an independent implementation of the strategies for a single node. With the strategy Local, the taint of
// virtual nodes decides, and not the affinity.
func allowed(t *testing.T, spec *offloading.NamespaceOffloadingSpec, node *corev1.Node) bool {
	t.Helper()
	selected := true
	if len(spec.ClusterSelector.NodeSelectorTerms) > 0 {
		selector, err := nodeaffinity.NewNodeSelector(&spec.ClusterSelector)
		require.NoError(t, err)
		selected = selector.Match(node)
	}
	virtual := node.Labels["liqo.io/type"] == "virtual-node"
	switch spec.PodOffloadingStrategy {
	case remote:
		return virtual && selected
	case both:
		return !virtual || selected
	}
	return true
}

func randomTerms(r *rand.Rand) []corev1.NodeSelectorTerm {
	var terms []corev1.NodeSelectorTerm
	for range r.IntN(4) {
		var term corev1.NodeSelectorTerm
		for range r.IntN(3) {
			term.MatchExpressions = append(term.MatchExpressions, randomRequirement(r))
		}
		if r.IntN(6) == 0 {
			term.MatchFields = []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{fmt.Sprint("node-", r.IntN(32))}}}
		}
		terms = append(terms, term)
	}
	return terms
}

func randomRequirement(r *rand.Rand) corev1.NodeSelectorRequirement {
	requirement := corev1.NodeSelectorRequirement{Key: []string{"a", "b", "c", "liqo.io/type"}[r.IntN(4)]}
	switch r.IntN(4) {
	case 0:
		requirement.Operator = corev1.NodeSelectorOpExists
	case 1:
		requirement.Operator = corev1.NodeSelectorOpDoesNotExist
	case 2:
		requirement.Operator, requirement.Values = corev1.NodeSelectorOpIn, []string{"x", "virtual-node"}
	default:
		requirement.Operator, requirement.Values = corev1.NodeSelectorOpNotIn, []string{"y"}
	}
	return requirement
}
