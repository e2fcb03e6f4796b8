// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !wasip1

package sdk

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// TestReadMore checks, in the native build, the functions that plugins rarely need. plugintest/inventory checks them on
// the real host.
func TestReadMore(t *testing.T) {
	p := &Plugin{hooks: [2]HookFunc{func(ctx Context, o Object) error {
		odd, hasOdd := o.Annotations().Lookup("odd]key")
		none, hasNone := o.Labels().Lookup("none")
		missing := o.Strings("metadata.none")
		for what, pair := range map[string][2]any{
			"kind":                 {o.Kind(), "Service"},
			"apiVersion":           {o.APIVersion(), "v1"},
			"namespace":            {o.Namespace(), "shop"},
			"local namespace":      {ctx.LocalNamespace(), "shop"},
			"remote namespace":     {ctx.RemoteNamespace(), "shop-rome"},
			"node":                 {ctx.NodeName(), "milan"},
			"ingress class":        {ctx.IngressClass(), ""},
			"bool":                 {o.Bool("spec.paused", false), true},
			"bool of nothing":      {o.Bool("spec.none", true), true},
			"bool of null":         {o.Bool("spec.nothing", true), true},
			"verbatim key":         {Key("a.b/c"), "[a.b/c]"},
			"escaped key":          {Key("odd]key"), "[odd]]key]"},
			"found":                {odd, "x"},
			"it is there":          {hasOdd, true},
			"not found":            {none, ""},
			"it is not there":      {hasNone, false},
			"has":                  {o.Labels().Has("app"), true},
			"has not":              {o.Labels().Has("ap"), false},
			"is":                   {o.Labels().Is("app", "web"), true},
			"is not":               {o.Labels().Is("app", "we"), false},
			"nothing is not":       {missing.Is("app", ""), false},
			"length":               {o.Labels().Len(), 3},
			"length of nothing":    {missing.Len(), 0},
			"has not, of nothing":  {missing.Has("app"), false},
			"unknown kind's name":  {Kind(99).String(), "unknown"},
			"name of a value kind": {o.Node.Kind("spec.ports").String(), "list"},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s: got %v, want %v", what, pair[0], pair[1])
			}
		}
		for range missing.All() {
			t.Error("a missing map has an entry")
		}
		return nil
	}}}
	context := map[string]any{"localNamespace": "shop", "remoteNamespace": "shop-rome", "nodeName": "milan"}
	_, err := p.RunNative(Call{Object: object(), Context: context})
	require.NoError(t, err)
}

func TestIterators(t *testing.T) {
	_, err := on(t, func(_ Context, o Object) error {
		var got []string
		for key, value := range o.Labels().All() {
			got = append(got, key+"="+value)
		}
		for i, port := range o.Get("spec.ports").Elements() {
			got = slices.Insert(got, i, port.String("name"))
		}
		for key, value := range o.Get("spec").Entries() {
			got = append(got, key+" "+value.Kind("").String())
		}
		want := []string{
			"http", "https", "app=web", "vendor.example/a=1", "vendor.example/b=2",
			"nothing null", "paused boolean", "ports list", "ratio float", "replicas integer",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		first := 0
		for range o.Get("spec").Entries() {
			first++
			break
		}
		for range o.Labels().All() {
			first++
			break
		}
		for range o.Get("spec.ports").Elements() {
			first++
			break
		}
		if first != 3 {
			t.Errorf("three iterators that were left at once gave %d entries", first)
		}
		return nil
	})
	require.NoError(t, err)
}

func TestSetFloat(t *testing.T) {
	result, err := on(t, func(_ Context, o Object) error {
		o.SetFloat("spec.ratio", 0.5)
		o.SetFloat("spec.new.ratio", -1)
		return nil
	})
	require.NoError(t, err)
	want := object()
	want["spec"].(map[string]any)["ratio"] = 0.5
	want["spec"].(map[string]any)["new"] = map[string]any{"ratio": -1.0}
	if diff := cmp.Diff(want, result.Object); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
