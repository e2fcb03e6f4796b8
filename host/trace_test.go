// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/document"
)

// traced runs plugins on an object. It returns the edits of each plugin in the form "plugin path: before -> after".
func traced(t *testing.T, object map[string]any, list ...*Plugin) (lines []string, conflicts []Conflict, err error) {
	t.Helper()
	chain, err := NewChain(Outgoing, DefaultGuard("Thing"), list...)
	require.NoError(t, err)
	var found Conflicts
	found.Reset()
	env := &Env{Trace: func(p *Plugin, edits iter.Seq[Edit]) {
		from := len(lines)
		for e := range edits {
			lines = append(lines, fmt.Sprintf("%s %s: %s -> %s", p.Name(), e.Path, e.Before.AppendJSON(nil), e.After.AppendJSON(nil)))
		}
		slices.Sort(lines[from:])
		found.Trace(p, edits)
	}}
	doc := document.New()
	doc.Reset(object)
	_, err = chain.Run(context.Background(), doc, env)
	return lines, found.Found(), err
}

func TestTrace(t *testing.T) {
	h := newHost(t)
	load := func(name string, end []byte, pc PluginConfig, steps ...step) *Plugin {
		return mustLoad(t, h, name, assembleGuest(name, `"*"`, end, steps...), pc)
	}
	first := load("first", returnZero, PluginConfig{}, set("spec.a", "1"), set("spec.ab", "1"), set("spec.list[0].k", "1"), remove("spec.gone"))
	second := load("second", returnZero, PluginConfig{}, set("spec.a", "2"), set("spec.b", "2"), set("spec.gone", "2"))
	same := load("same", returnZero, PluginConfig{}, set("spec.a", "2"))
	broken := load("broken", returnOne, PluginConfig{IgnoreFailure: true}, set("spec.a", "broken"))
	third := load("third", returnZero, PluginConfig{}, remove("spec.list\nspec.b"))
	object := map[string]any{"spec": map[string]any{"a": "0", "gone": "0", "list": []any{map[string]any{"k": "0"}}}}
	lines, conflicts, err := traced(t, object, first, second, same, broken, third)
	require.NoError(t, err)
	require.Equal(t, []string{
		`first spec.a: "0" -> "1"`, `first spec.ab: null -> "1"`, `first spec.gone: "0" -> null`, `first spec.list[0].k: "0" -> "1"`,
		`second spec.a: "1" -> "2"`, `second spec.b: null -> "2"`, `second spec.gone: null -> "2"`,
		`third spec.b: "2" -> null`, `third spec.list: [{"k":"1"}] -> null`,
	}, lines)
	require.ElementsMatch(t, []Conflict{
		{"spec.a", "first", "second"}, {"spec.gone", "first", "second"}, {"spec.b", "second", "third"}, {"spec.list", "first", "third"},
	}, conflicts)

	skips := load("skips", returnZero, PluginConfig{}, set("spec.a", "2"), step{"skip", []any{"x"}})
	lines, conflicts, err = traced(t, object, skips, first)
	require.NoError(t, err)
	if len(lines)+len(conflicts) > 0 {
		t.Errorf("a plugin that skips is traced: %v %v", lines, conflicts)
	}
	refused := mustLoad(t, h, "refused", assembleGuest("refused", `"status"`, returnZero, set("spec.a", "1")), PluginConfig{})
	if lines, _, err = traced(t, object, refused); err == nil || len(lines) > 0 {
		t.Errorf("a refused edit: %v, %v", lines, err)
	}
}

// TestConflictsOfManyEdits checks that only one conflict is reported for a path, no matter how many edits are below
// it.
func TestConflictsOfManyEdits(t *testing.T) {
	h := newHost(t)
	first := mustLoad(t, h, "first", assembleGuest("first", `"*"`, returnZero, set("spec.m.a", "1"), set("spec.m.b", "1"), set("spec.mn", "1")), PluginConfig{})
	second := mustLoad(t, h, "second", assembleGuest("second", `"*"`, returnZero, remove("spec.m")), PluginConfig{})
	_, conflicts, err := traced(t, map[string]any{"spec": map[string]any{"m": map[string]any{}}}, first, second)
	require.NoError(t, err)
	require.Equal(t, []Conflict{{"spec.m", "first", "second"}}, conflicts)
}
