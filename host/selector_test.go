// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/refract-project/refract/host/document"
)

// inNamespace selects the objects of a namespace.
type inNamespace string

func (n inNamespace) Selects(env *Env) (bool, error) { return env.Namespace == string(n), nil }

// withLabels selects objects by their labels.
type withLabels struct{ selector labels.Selector }

func (l *withLabels) Selects(env *Env) (bool, error) {
	return l.selector.Matches(env.ObjectLabels()), nil
}

func labelSelector(t *testing.T, text string) Selector {
	selector, err := labels.Parse(text)
	require.NoError(t, err)
	return &withLabels{selector}
}

// unknown is a selector whose result is not known yet.
type unknown struct{}

func (unknown) Selects(*Env) (bool, error) { return false, errors.New("no labels yet") }

// selectiveRun runs a chain on an object. It returns a text with the plugins that ran, the plugins that were left
// out, and the value of spec.by.
func selectiveRun(t *testing.T, chain *Chain, env *Env, object map[string]any) string {
	t.Helper()
	doc := document.New()
	doc.Reset(object)
	out, err := chain.Run(context.Background(), doc, env)
	if err != nil {
		if doc.Edited() {
			t.Error("edits are left after an error")
		}
		return err.Error()
	}
	var text strings.Builder
	for _, call := range out.Calls {
		text.WriteString(call.Plugin + " ")
	}
	for _, p := range out.LeftOut() {
		text.WriteString("-" + p.Name() + " ")
	}
	by, err := doc.Root().At("spec.by")
	require.NoError(t, err)
	by1, _ := by.Text()
	return text.String() + "=" + by1
}

func TestSelectors(t *testing.T) {
	h := newHost(t)
	load := func(name string, steps ...step) *Plugin {
		return mustLoad(t, h, name, assembleGuest(name, `"spec","metadata.labels"`, returnZero, append(steps, set("spec.by", name))...), PluginConfig{})
	}
	// The first plugin removes the labels, but this must have no effect on selectors, which use the labels of the
	// original object.
	first, shop, gold := load("first", remove("metadata.labels")), load("shop"), load("gold")
	chain, err := NewSelectiveChain(Outgoing, DefaultGuard("Thing"),
		Entry{Plugin: first}, Entry{Plugin: shop, Selector: inNamespace("shop")}, Entry{Plugin: gold, Selector: labelSelector(t, "tier=gold,!old")})
	require.NoError(t, err)
	object := func(labels string) map[string]any {
		fields := map[string]any{}
		for label := range strings.FieldsSeq(labels) {
			key, value, _ := strings.Cut(label, "=")
			fields[key] = value
		}
		return map[string]any{"metadata": map[string]any{"labels": fields}}
	}
	env := &Env{}
	for _, c := range []struct{ namespace, labels, of, want string }{
		{"shop", "tier=gold", "", "first shop gold =gold"},
		{"shop", "tier=tin", "", "first shop -gold =shop"},
		{"other", "tier=gold old=1", "", "first -shop -gold =first"},
		{"other", "tier=gold", "", "first gold -shop =gold"},
		{"other", "", "tier=gold", "first gold -shop =gold"},
		{"other", "tier=gold", "tier=tin", "first -shop -gold =first"},
	} {
		env.Namespace, env.Object = c.namespace, nil
		if c.of != "" {
			env.Object = object(c.of)
		}
		if got := selectiveRun(t, chain, env, object(c.labels)); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	// These chains contain the same plugin, once with another selector and once without a selector.
	env = &Env{Namespace: "shop"}
	negated, err := NewSelectiveChain(Outgoing, DefaultGuard("Thing"), Entry{Plugin: first}, Entry{Plugin: shop, Selector: NoneOf(inNamespace("shop"), inNamespace("other"))})
	require.NoError(t, err)
	plain, err := NewChain(Outgoing, DefaultGuard("Thing"), first, shop)
	require.NoError(t, err)
	for namespace, want := range map[string]string{"shop": "first -shop =first", "other": "first -shop =first", "third": "first shop =shop"} {
		env.Namespace = namespace
		if got := selectiveRun(t, negated, env, object("")); got != want {
			t.Errorf("negated in %s: %q", namespace, got)
		}
		if got := selectiveRun(t, plain, env, object("")); got != "first shop =shop" {
			t.Errorf("without selectors in %s: %q", namespace, got)
		}
	}
	if NoneOf() != nil || NoneOf(inNamespace("a"), inNamespace("b")) != NoneOf(inNamespace("a"), inNamespace("b")) {
		t.Error("equal exclusions differ")
	}
}

// TestGuardKnowsTheSelectedPlugin checks that an edit is compared with the manifest of the plugin that made it, even
// if earlier plugins are left out or held entries precede it.
func TestGuardKnowsTheSelectedPlugin(t *testing.T) {
	h := newHost(t)
	broad := mustLoad(t, h, "broad", assembleGuest("broad", `"*"`, returnZero, set("spec.by", "broad")), PluginConfig{})
	narrow := mustLoad(t, h, "narrow", assembleGuest("narrow", `"status"`, returnZero, set("spec.by", "narrow")), PluginConfig{})
	held := Entry{Held: &HeldError{Kind: "Thing", Plugin: "gone", Reason: "it is broken"}, Selector: inNamespace("held")}
	for n, entries := range [][]Entry{
		{held, {Plugin: broad, Selector: inNamespace("shop")}, {Plugin: narrow}},
		{{Plugin: narrow, Selector: inNamespace("shop")}, held, {Plugin: broad}},
	} {
		chain, err := NewSelectiveChain(Outgoing, DefaultGuard("Thing"), entries...)
		require.NoError(t, err)
		got := selectiveRun(t, chain, &Env{Namespace: "other"}, map[string]any{})
		refused := strings.Contains(got, `plugin "narrow" may not change spec`)
		if refused != (n == 0) {
			t.Errorf("%d: %s", n, got)
		}
	}
}

// TestHeldObjects checks that no plugin runs on a held object, or on an object for which the result of a selector is
// not known.
func TestHeldObjects(t *testing.T) {
	h := newHost(t)
	p := mustLoad(t, h, "p", assembleGuest("p", `"*"`, returnZero, set("spec.by", "p")), PluginConfig{})
	ctx := context.Background()
	for _, c := range []struct {
		name  string
		entry Entry
		holds func(error) bool
	}{
		{"held", Entry{Held: &HeldError{Kind: "Thing", Plugin: "gone", Reason: "it is broken"}}, func(err error) bool {
			var held *HeldError
			return errors.As(err, &held) && held.Plugin == "gone" && held.Kind == "Thing" && held.Reason == "it is broken"
		}},
		{"unknown", Entry{Plugin: p, Selector: unknown{}}, func(err error) bool {
			var selector *SelectorError
			return errors.As(err, &selector) && selector.Plugin == "p"
		}},
		{"unknown exclusion", Entry{Plugin: p, Selector: NoneOf(unknown{})}, func(err error) bool {
			var selector *SelectorError
			return errors.As(err, &selector)
		}},
	} {
		for _, entries := range [][]Entry{{c.entry, {Plugin: p}}, {{Plugin: p}, c.entry}} {
			chain, err := NewSelectiveChain(Outgoing, DefaultGuard("Thing"), entries...)
			require.NoError(t, err)
			r := NewRegistry(nil)
			r.Swap("Thing", Outgoing, chain)
			doc := document.New()
			doc.Reset(map[string]any{})
			out, err := r.Run(ctx, "Thing", Outgoing, doc, &Env{})
			if !c.holds(err) || doc.Edited() || len(out.Calls) > 0 {
				t.Errorf("%s: %v, edited %t, %d calls", c.name, err, doc.Edited(), len(out.Calls))
			}
		}
	}
}

// TestSelectorsCostNoMemory checks that a run with selectors allocates no memory.
func TestSelectorsCostNoMemory(t *testing.T) {
	p := mustLoad(t, newHost(t), "p", noop, PluginConfig{})
	chain, err := NewSelectiveChain(Outgoing, DefaultGuard("Thing"), Entry{Plugin: p, Selector: inNamespace("shop")},
		Entry{Plugin: p, Selector: NoneOf(inNamespace("shop"))}, Entry{Plugin: p, Selector: labelSelector(t, "app=x")})
	require.NoError(t, err)
	object, doc, env, ctx := serviceObject(), document.New(), &Env{Domain: "shop", Namespace: "shop", Context: benchContext()}, context.Background()
	allocs := testing.AllocsPerRun(100, func() {
		doc.Reset(object)
		if _, err := chain.Run(ctx, doc, env); err != nil {
			t.Error(err)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestSwapAll(t *testing.T) {
	r := NewRegistry(nil)
	var told []string
	defer r.Subscribe(func(kind string, hook Hook, generation uint64) {
		told = append(told, fmt.Sprint(kind, " ", hook, " ", generation, " ", r.Chain("A", Outgoing).Generation(), r.Chain("B", Incoming).Generation()))
	})()
	chains := map[ChainKey]*Chain{}
	for _, key := range []ChainKey{{"B", Incoming}, {"A", Incoming}, {"A", Outgoing}} {
		var err error
		chains[key], err = NewChain(key.Hook, Guard{})
		require.NoError(t, err)
	}
	if previous := r.SwapAll(chains); previous[ChainKey{"A", Incoming}] != nil {
		t.Error("there was a chain before")
	}
	require.Equal(t, []string{"A outgoing 1 1 1", "A incoming 1 1 1", "B incoming 1 1 1"}, told)
	if r.SwapAll(nil); r.Generation() != 1 {
		t.Error("nothing is a swap")
	}
}
