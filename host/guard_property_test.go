// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/json"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/test/support/short"
)

// These tests compare the guard with a simple model, which compares the whole object before and after each plugin:
// every difference must be at a path that the plugin has declared. The plugins' actions and declarations are random.

type draw struct{ *rand.Rand }

func (d draw) of(list ...string) string { return list[d.IntN(len(list))] }

// path returns the path of an existing value, or a path that differs slightly from one.
func (d draw) path() string {
	var b strings.Builder
	b.WriteString(d.of("spec", "spec", "spec.hostNetwork", "spec.list", "spec.list.1", "metadata.labels", "metadata.annotations", "metadata", "status", "status.list"))
	for range d.IntN(3) {
		if s := d.of("a", "b", "list", "0", "1", "-", "[offloading.liqo.io/origin]", "[plugins.refract.io/x]", "ownerReferences", "hostNetwork"); s[0] == '[' {
			b.WriteString(s)
		} else {
			b.WriteString("." + s)
		}
	}
	return b.String()
}

func (d draw) json(depth int) string {
	switch n := d.IntN(8); {
	case n == 0:
		return "null"
	case n == 1:
		return d.of("1", "1.0", "9007199254740993", "9007199254740992.0", "1e3")
	case n == 2:
		return d.of("true", "false")
	case n < 5 || depth == 0:
		return d.of(`"x"`, `""`, `"y"`)
	case n == 5:
		var items []string
		for range d.IntN(3) {
			items = append(items, d.json(depth-1))
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	var items []string
	for _, k := range []string{"a", "b", "list", "hostNetwork"} {
		if d.IntN(3) == 0 {
			items = append(items, strconv.Quote(k)+":"+d.json(depth-1))
		}
	}
	return "{" + strings.Join(items, ",") + "}"
}

func (d draw) object() map[string]any {
	text := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n","labels":{"a":"1","offloading.liqo.io/origin":"rome"},` +
		`"ownerReferences":[{"uid":"1"}]},"spec":{"a":` + d.json(3) + `,"list":[` + d.json(2) + `,{"a":1,"b":"x"},` + d.json(2) + `]},"status":{"list":` + d.json(3) + `}}`
	var object map[string]any
	if err := json.UnmarshalCaseSensitivePreserveInts([]byte(text), &object); err != nil {
		panic(err)
	}
	return object
}

// step returns a random call of a function that changes the object, and sometimes of one that only visits it.
func (d draw) step() step {
	path := d.path()
	switch d.IntN(16) {
	case 0, 1:
		return set(path, d.of("x", "y", "1"))
	case 2:
		return step{"set_int", []any{1, path, int64(1)}}
	case 3:
		return step{"set_float", []any{1, path, 1.5}}
	case 4:
		return step{"set_bool", []any{1, path, d.IntN(2)}}
	case 5:
		return step{"set_null", []any{1, path}}
	case 6:
		return step{"set_map", []any{1, path}}
	case 7:
		return step{"set_list", []any{1, path}}
	case 8:
		return step{"set_json", []any{1, path, d.json(3)}}
	case 9:
		return step{"copy", []any{1, path, step{"get", []any{1, d.path()}}}}
	case 10, 11:
		return remove(strings.ReplaceAll(path, ".-", ".*"))
	case 12:
		return step{"remove_elem", []any{step{"get", []any{1, path}}, d.IntN(2)}}
	case 13:
		return step{"remove_keys_glob", []any{1, path, d.of("*", "a", "?*")}}
	case 14:
		return step{"ensure_map", []any{1, path}}
	}
	return step{"set_string", []any{step{"get", []any{1, path}}, d.of("a", "b", "list"), "via"}}
}

func (d draw) steps() []step {
	steps := make([]step, 1+d.IntN(5))
	for i := range steps {
		steps[i] = d.step()
	}
	return steps
}

func (d draw) writes() []string {
	var out []string
	for range 1 + d.IntN(2) {
		out = append(out, d.of("*", "spec", "spec.a", "spec.*.a", "spec.list", "metadata.labels", "metadata.labels.a", "metadata", "status.list.0", "spec.list.*.b"))
	}
	return out
}

// modelPath is a path of keys and decimal positions.
type modelPath []string

// modelDiff returns the paths at which two values differ.
func modelDiff(path modelPath, before any, was bool, after any, is bool) (out []modelPath) {
	below := func(s string) modelPath { return append(slices.Clone(path), s) }
	b, wasMap := before.(map[string]any)
	a, isMap := after.(map[string]any)
	if is && isMap && (wasMap || !was && len(a) > 0) {
		for k := range b {
			v, ok := a[k]
			out = append(out, modelDiff(below(k), b[k], true, v, ok)...)
		}
		for k, v := range a {
			if _, ok := b[k]; !ok {
				out = append(out, modelDiff(below(k), nil, false, v, true)...)
			}
		}
		return out
	}
	bl, wasList := before.([]any)
	al, isList := after.([]any)
	if was && is && wasList && isList && len(bl) == len(al) {
		for i := range al {
			out = append(out, modelDiff(below(strconv.Itoa(i)), bl[i], true, al[i], true)...)
		}
		return out
	}
	if was == is && (!was || document.Of(before).Equal(document.Of(after))) {
		return nil
	}
	return []modelPath{path}
}

// within reports whether a path is at or below an allowed path, which may have wildcards.
func (p modelPath) within(allowed string) bool {
	if allowed == "*" {
		return true
	}
	segments := strings.Split(allowed, ".")
	return len(p) >= len(segments) &&
		slices.EqualFunc(p[:len(segments)], segments, func(have, want string) bool { return want == "*" || have == want })
}

// at returns the value at the path.
func (p modelPath) at(v any) (any, bool) {
	for _, s := range p {
		switch c := v.(type) {
		case map[string]any:
			e, ok := c[s]
			if !ok {
				return nil, false
			}
			v = e
		case []any:
			n, err := strconv.Atoi(s)
			if err != nil || n >= len(c) {
				return nil, false
			}
			v = c[n]
		default:
			return nil, false
		}
	}
	return v, true
}

// modelRefuses reports whether the guard must reject the result of a plugin.
func modelRefuses(before, after map[string]any, writes []string) bool {
	same := func(path ...string) bool {
		return len(modelDiff(nil, wrap(modelPath(path).at(before)), true, wrap(modelPath(path).at(after)), true)) == 0
	}
	for _, path := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}} {
		if !same(path...) {
			return true
		}
	}
	for _, field := range []string{"labels", "annotations"} {
		for _, o := range []map[string]any{before, after} {
			keys, _ := modelPath{"metadata", field}.at(o)
			m, _ := keys.(map[string]any)
			for k := range m {
				_, stays := modelPath{"metadata", field, k}.at(after)
				if strings.HasPrefix(k, "offloading.liqo.io/") && !same("metadata", field, k) ||
					strings.HasPrefix(k, "plugins.refract.io/") && stays && !same("metadata", field, k) {
					return true
				}
			}
		}
	}
	if _, ok := (modelPath{"metadata", "ownerReferences"}).at(after); ok && !same("metadata", "ownerReferences") {
		return true
	}
	if on, ok := (modelPath{"spec", "hostNetwork"}).at(after); ok && on != nil && on != false && !same("spec", "hostNetwork") {
		return true
	}
	for _, p := range modelDiff(nil, before, true, after, true) {
		if !slices.ContainsFunc(writes, p.within) {
			return true
		}
	}
	return false
}

func wrap(v any, ok bool) any {
	if !ok {
		return map[string]any{}
	}
	return map[string]any{"there": v}
}

func quoted(list []string) string {
	var out []string
	for _, s := range list {
		out = append(out, strconv.Quote(s))
	}
	return strings.Join(out, ",")
}

// guardProperty generates two plugins and an object, and checks that the guard and the model make the same decision
// about the edits. It reports whether they have rejected the edits.
func guardProperty(t *testing.T, h *Host, d draw) (refused bool) {
	object := d.object()
	names := []string{"first", "second"}
	free, held := []*Plugin{}, []*Plugin{}
	writes := [][]string{}
	for _, name := range names {
		steps := d.steps()
		writes = append(writes, d.writes())
		load := func(writes []string) *Plugin {
			p, err := h.Load(t.Context(), name, assembleGuest(name, quoted(writes), returnZero, steps...), PluginConfig{})
			require.NoError(t, err)
			t.Cleanup(func() { _ = p.Close(t.Context()) })
			return p
		}
		free, held = append(free, load([]string{"*"})), append(held, load(writes[len(writes)-1]))
	}
	// To find the edits of each plugin, the plugins are run separately and without a guard.
	states := []map[string]any{object}
	for _, p := range free {
		chain, err := NewChain(Outgoing, Guard{}, p)
		require.NoError(t, err)
		doc := document.New()
		doc.Reset(states[len(states)-1])
		if _, err := chain.Run(t.Context(), doc, &Env{Context: benchContext()}); err != nil {
			// There is nothing to compare, because the plugin has failed, for example after a step into a scalar.
			return false
		}
		states = append(states, runtime.DeepCopyJSON(doc.Value()))
	}
	blamed := ""
	for n, name := range names {
		if modelRefuses(states[n], states[n+1], writes[n]) {
			blamed = name
			break
		}
	}
	chain, err := NewChain(Outgoing, DefaultGuard("Pod"), held...)
	require.NoError(t, err)
	doc := document.New()
	doc.Reset(object)
	_, err = chain.Run(t.Context(), doc, &Env{Context: benchContext()})
	var e *GuardError
	switch {
	case blamed == "" && err != nil:
		t.Fatalf("refused, although each plugin kept to what it declared: %v\nwrites %q\n%v\n%v\n%v", err, writes, states[0], states[1], states[2])
	case blamed != "" && (!errors.As(err, &e) || e.Plugin != blamed):
		t.Fatalf("%v, want %s blamed\nwrites %q\n%v\n%v\n%v", err, blamed, writes, states[0], states[1], states[2])
	case err != nil && !reflect.DeepEqual(doc.Value(), object):
		t.Fatal("a refused object changed")
	}
	return blamed != ""
}

func TestGuardProperty(t *testing.T) {
	short.NeedTime(t, "hundreds of generated plugins")
	h, refused := newHost(t), 0
	const rounds = 600
	for seed := range uint64(rounds) {
		if guardProperty(t, h, draw{rand.New(rand.NewPCG(seed, 7))}) {
			refused++
		}
	}
	if refused < rounds/10 || refused > rounds*9/10 {
		t.Errorf("%d of %d were refused: the draw is too narrow", refused, rounds)
	}
}

func FuzzGuard(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	h := newHost(f)
	f.Fuzz(func(t *testing.T, a, b uint64) { guardProperty(t, h, draw{rand.New(rand.NewPCG(a, b))}) })
}
