// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !wasip1

package sdk

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// object returns the object that most tests use.
func object() map[string]any {
	return map[string]any{
		"apiVersion": "v1",
		"kind":       "Service",
		"metadata": map[string]any{
			"name":        "web",
			"namespace":   "shop",
			"labels":      map[string]any{"app": "web", "vendor.example/a": "1", "vendor.example/b": "2"},
			"annotations": map[string]any{"odd]key": "x", "a.b/c": "y"},
		},
		"spec": map[string]any{
			"replicas": int64(3),
			"ratio":    2.5,
			"paused":   true,
			"nothing":  nil,
			"ports": []any{
				map[string]any{"name": "http", "nodePort": int64(30080)},
				map[string]any{"name": "https"},
			},
		},
	}
}

// on runs a hook on object() in the native build.
func on(t *testing.T, hook HookFunc) (*Result, error) {
	t.Helper()
	p := &Plugin{hooks: [2]HookFunc{hook}}
	return p.RunNative(Call{
		Object:  object(),
		Context: map[string]any{"localClusterID": "rome", "virtualNodes": map[string]any{"n.1": "milan"}},
		Config:  map[string]any{"globs": []any{"vendor.*"}},
	})
}

func TestRead(t *testing.T) {
	_, err := on(t, func(ctx Context, o Object) error {
		for what, pair := range map[string][2]any{
			"string":            {o.String("metadata.name"), "web"},
			"absent string":     {o.String("spec.none.of.this"), ""},
			"string below null": {o.String("spec.nothing.more"), ""},
			"verbatim key":      {o.String("metadata.annotations[a.b/c]"), "y"},
			"escaped bracket":   {o.Annotations().Get("odd]key"), "x"},
			"int":               {o.Int("spec.replicas", 0), int64(3)},
			"int of nothing":    {o.Int("spec.none", 7), int64(7)},
			"float":             {o.Float("spec.ratio", 0), 2.5},
			"float of an int":   {o.Float("spec.replicas", 0), 3.0},
			"bool":              {o.True("spec.paused"), true},
			"index":             {o.String("spec.ports.1.name"), "https"},
			"bracketed index":   {o.String("spec.ports[0].name"), "http"},
			"past the end":      {o.Get("spec.ports.2").Exists(), false},
			"null exists":       {o.Get("spec.nothing").Exists(), true},
			"but has nothing":   {o.Has("spec.nothing"), false},
			"length":            {o.Len("spec.ports"), 2},
			"equal":             {o.Is("metadata.name", "web"), true},
			"not a string":      {o.Is("spec.replicas", "3"), false},
			"kind":              {o.Node.Kind("spec.ratio"), KindFloat},
			"json":              {string(o.JSON("spec.ports.1")), `{"name":"https"}`},
			"chain of nothing":  {o.Get("spec.none").Get("more").At(3).Field("x").String("y"), ""},
			"virtual node":      {ctx.VirtualNode("n.1"), "milan"},
			"ordinary node":     {ctx.VirtualNode("n.2"), ""},
			"cluster":           {ctx.LocalClusterID(), "rome"},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s: got %v, want %v", what, pair[0], pair[1])
			}
		}
		if diff := cmp.Diff([]string{"annotations", "labels", "name", "namespace"}, o.Keys("metadata")); diff != "" {
			t.Error(diff)
		}
		return nil
	})
	require.NoError(t, err)
}

func TestEdit(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(Context, Object)
		want func(o map[string]any)
	}{
		"set makes maps": {
			func(_ Context, o Object) { o.SetString("a.b[c.d].e", "x") },
			func(o map[string]any) {
				o["a"] = map[string]any{"b": map[string]any{"c.d": map[string]any{"e": "x"}}}
			},
		},
		"set below null": {
			func(_ Context, o Object) { o.SetInt("spec.nothing.n", 1) },
			func(o map[string]any) { o["spec"].(map[string]any)["nothing"] = map[string]any{"n": int64(1)} },
		},
		"append and replace": {
			func(_ Context, o Object) {
				o.Get("spec.ports").SetMap("-").SetString("name", "new")
				o.SetBool("spec.ports.0", false)
				o.SetNull("spec.ports.1.name")
			},
			func(o map[string]any) {
				o["spec"].(map[string]any)["ports"] = []any{false, map[string]any{"name": nil}, map[string]any{"name": "new"}}
			},
		},
		"remove many": {
			func(_ Context, o Object) {
				if n := o.Remove("spec.ports.*.nodePort", "spec.ratio", "none", "spec.replicas.x"); n != 2 {
					panic(n)
				}
			},
			func(o map[string]any) {
				spec := o["spec"].(map[string]any)
				delete(spec, "ratio")
				delete(spec["ports"].([]any)[0].(map[string]any), "nodePort")
			},
		},
		"remove all entries": {
			func(_ Context, o Object) { o.Remove("metadata.labels.*\nspec.ports.*") },
			func(o map[string]any) {
				o["metadata"].(map[string]any)["labels"] = map[string]any{}
				o["spec"].(map[string]any)["ports"] = []any{}
			},
		},
		"remove an element": {
			func(_ Context, o Object) { o.Get("spec.ports").RemoveAt(0) },
			func(o map[string]any) {
				o["spec"].(map[string]any)["ports"] = []any{map[string]any{"name": "https"}}
			},
		},
		"labels by glob, list and prefix": {
			func(ctx Context, o Object) {
				o.Labels().RemoveGlob("none", "*/a")
				o.Labels().RemoveListed(ctx.Config(), "globs")
				o.Annotations().RemovePrefix("a.")
			},
			func(o map[string]any) {
				m := o["metadata"].(map[string]any)
				m["labels"] = map[string]any{"app": "web"}
				m["annotations"] = map[string]any{"odd]key": "x"}
			},
		},
		"copy is a copy": {
			func(_ Context, o Object) {
				o.Copy("spec.copied", o.Get("spec.ports.0"))
				o.SetString("spec.ports.0.name", "changed")
			},
			func(o map[string]any) {
				spec := o["spec"].(map[string]any)
				spec["copied"] = map[string]any{"name": "http", "nodePort": int64(30080)}
				spec["ports"].([]any)[0].(map[string]any)["name"] = "changed"
			},
		},
		"json": {
			func(_ Context, o Object) { o.SetJSON("spec.ports", []byte(`[1,2.5,{"a":null}]`)) },
			func(o map[string]any) {
				o["spec"].(map[string]any)["ports"] = []any{int64(1), 2.5, map[string]any{"a": nil}}
			},
		},
		"typed": {
			func(_ Context, o Object) {
				var ports []struct {
					Name     string `json:"name"`
					NodePort int32  `json:"nodePort,omitempty"`
				}
				if err := Decode(o.Node, "spec.ports", &ports); err != nil {
					panic(err)
				}
				ports[0].NodePort++
				if err := Encode(o.Node, "spec.ports", ports); err != nil {
					panic(err)
				}
			},
			func(o map[string]any) {
				o["spec"].(map[string]any)["ports"].([]any)[0].(map[string]any)["nodePort"] = int64(30081)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := on(t, func(ctx Context, o Object) error {
				test.edit(ctx, o)
				return nil
			})
			require.NoError(t, err)
			want := object()
			test.want(want)
			if diff := cmp.Diff(want, result.Object); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestMistakesEndTheCall(t *testing.T) {
	for name, mistake := range map[string]func(Context, Object){
		"string of a number":        func(_ Context, o Object) { o.String("spec.replicas") },
		"integer of a fraction":     func(_ Context, o Object) { o.Int("spec.ratio", 0) },
		"bool of a string":          func(_ Context, o Object) { o.True("kind") },
		"through a scalar":          func(_ Context, o Object) { o.Get("kind.x") },
		"key of a list":             func(_ Context, o Object) { o.Get("spec.ports.http") },
		"wildcard to set":           func(_ Context, o Object) { o.SetInt("spec.ports.*.nodePort", 1) },
		"past the end of a list":    func(_ Context, o Object) { o.SetInt("spec.ports.2", 1) },
		"empty segment":             func(_ Context, o Object) { o.Get("spec..ports") },
		"final dot":                 func(_ Context, o Object) { o.Get("spec.") },
		"open bracket":              func(_ Context, o Object) { o.Get("metadata.labels[app") },
		"stray bracket":             func(_ Context, o Object) { o.Get("metadata.la]bels") },
		"text after bracket":        func(_ Context, o Object) { o.Get("metadata[labels]x") },
		"long path":                 func(_ Context, o Object) { o.Get(strings.Repeat("a", 1025)) },
		"write to the context":      func(ctx Context, _ Object) { ctx.Node().SetString("nodeName", "x") },
		"write to the config":       func(ctx Context, _ Object) { ctx.Config().Get("globs").RemoveAt(0) },
		"write to nothing":          func(_ Context, o Object) { o.Get("none").SetString("a", "b") },
		"write to what was removed": func(_ Context, o Object) { n := o.Get("spec"); o.Remove("spec"); n.SetInt("a", 1) },
		"replace the root":          func(_ Context, o Object) { o.SetMap("") },
		"remove the root":           func(_ Context, o Object) { o.Remove("") },
		"copy of nothing":           func(_ Context, o Object) { o.Copy("a", o.Get("none")) },
		"map where a list is":       func(_ Context, o Object) { o.EnsureMap("spec.ports") },
		"malformed JSON":            func(_ Context, o Object) { o.SetJSON("a", []byte(`{"a":1} x`)) },
	} {
		t.Run(name, func(t *testing.T) {
			result, err := on(t, func(ctx Context, o Object) error {
				mistake(ctx, o)
				return nil
			})
			var access *AccessError
			if !errors.As(err, &access) {
				t.Fatalf("want an AccessError, got %v and %v", err, result)
			}
		})
	}
}

func TestOutcomes(t *testing.T) {
	result, err := on(t, func(ctx Context, _ Object) error {
		ctx.Warn("one ", "two")
		ctx.Log(LevelInfo, "three")
		return Skip("not today")
	})
	want := &Result{Skipped: true, SkipReason: "not today", Warnings: []string{"one two"}, Log: []LogLine{{LevelInfo, "three"}}}
	if diff := cmp.Diff(want, result); err != nil || diff != "" {
		t.Errorf("error %v, (-want +got)\n%s", err, diff)
	}
	if _, err := on(t, func(Context, Object) error { return Fail("broken") }); err == nil || err.Error() != "broken" {
		t.Errorf("got %v", err)
	}
	if _, err := (&Plugin{}).RunNative(Call{Hook: HookIncoming}); err == nil || !strings.Contains(err.Error(), "no incoming hook") {
		t.Errorf("got %v", err)
	}
}

func TestHandlesFollowTheirPlace(t *testing.T) {
	_, err := on(t, func(_ Context, o Object) error {
		name := o.Get("metadata.name")
		labels := o.Get("metadata.labels")
		o.SetString("metadata.name", "other")
		o.Remove("metadata.labels")
		if got := name.String(""); got != "other" {
			t.Errorf("the handle reads %q after the place was set again", got)
		}
		if labels.Len("") != 0 || labels.Has("app") {
			t.Error("the handle reads what was removed")
		}
		return nil
	})
	require.NoError(t, err)
}

// TestDecodeKeepsWholeNumbers checks that whole numbers that a float64 cannot represent exactly are unchanged after
// they were decoded and encoded.
func TestDecodeKeepsWholeNumbers(t *testing.T) {
	const big = int64(9007199254740993) // 2^53 + 1
	p := &Plugin{hooks: [2]HookFunc{func(_ Context, o Object) error {
		var m map[string]any
		var v any
		var s struct{ Big any }
		for into, path := range map[any]string{&m: "spec", &v: "spec", &s: "spec"} {
			if err := Decode(o.Node, path, into); err != nil {
				return err
			}
			if err := Encode(o.Node, "copy.-", into); err != nil {
				return err
			}
		}
		if m["big"] != big || m["half"] != 0.5 {
			t.Errorf("%v", m)
		}
		return nil
	}}}
	result, err := p.RunNative(Call{Object: map[string]any{"copy": []any{}, "spec": map[string]any{"big": big, "half": 0.5}}})
	require.NoError(t, err)
	for _, c := range result.Object["copy"].([]any) {
		m := c.(map[string]any)
		if m["big"] != big && m["Big"] != big {
			t.Errorf("%v", c)
		}
	}
}

// TestNativeFailsAsTheHostDoes checks that the native build returns the same errors as the host and does not panic.
func TestNativeFailsAsTheHostDoes(t *testing.T) {
	for name, hook := range map[string]HookFunc{
		"UTF-8": func(_ Context, o Object) error { o.SetString("spec.x", "\xff"); return nil },
		"NaN":   func(_ Context, o Object) error { o.SetFloat("spec.x", math.NaN()); return nil },
		"lists of maps": func(ctx Context, o Object) error {
			o.h.removeKeys("metadata.labels\nspec", ctx.config, "globs")
			return nil
		},
		"absent list": func(_ Context, o Object) error { o.Get("spec.none").RemoveAt(0); return nil },
	} {
		_, err := on(t, hook)
		var access *AccessError
		if !errors.As(err, &access) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (&Plugin{}).RunNative(Call{Object: map[string]any{"x": struct{}{}}}); err == nil {
		t.Error("a value of a strange type is taken")
	}
	if _, err := on(t, func(ctx Context, _ Object) error {
		if ip, ok := ctx.RemapIP("10.0.0.1"); ok {
			t.Errorf("without a remapper it is %s", ip)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestEnsureMapAppends(t *testing.T) {
	result, err := on(t, func(_ Context, o Object) error {
		o.EnsureMap("spec.ports.-").SetString("name", "new")
		return nil
	})
	require.NoError(t, err)
	if ports := result.Object["spec"].(map[string]any)["ports"].([]any); len(ports) != 3 {
		t.Errorf("%v", ports)
	}
}

func TestAppendingMakesTheList(t *testing.T) {
	result, err := on(t, func(_ Context, o Object) error {
		o.Copy("spec.copied.-", o.Get("spec.ports.1"))
		o.SetString("spec.nothing.-", "one") // this creates the list, because the value is null
		o.SetString("spec.nothing.-", "two")
		o.EnsureMap("spec.ensured.-").SetString("name", "new")
		o.SetString("spec.map[-]", "value")
		o.Get("spec").SetInt("deep.er.-", 1)
		return nil
	})
	require.NoError(t, err)
	spec := result.Object["spec"].(map[string]any)
	for key, want := range map[string]any{
		"copied":  []any{map[string]any{"name": "https"}},
		"nothing": []any{"one", "two"},
		"ensured": []any{map[string]any{"name": "new"}},
		"map":     map[string]any{"-": "value"},
		"deep":    map[string]any{"er": []any{int64(1)}},
	} {
		if diff := cmp.Diff(want, spec[key]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
}
