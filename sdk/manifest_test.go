// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !wasip1

package sdk

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestManifestJSON(t *testing.T) {
	hook := func(Context, Object) error { return nil }
	p := &Plugin{
		manifest: Manifest{
			Name: "odd \"name\"\\\n", Version: "1", Kinds: []string{"Pod", "Ingress.networking.k8s.io"},
			Writes: []string{"spec"}, ConfigSchema: `{"type":"object"}`,
		},
		hooks: [2]HookFunc{HookOutgoing: hook, HookIncoming: hook},
	}
	var got map[string]any
	require.NoError(t, json.Unmarshal(p.ManifestJSON(), &got))
	want := map[string]any{
		"name": "odd \"name\"\\\n", "version": "1", "kinds": []any{"Pod", "Ingress.networking.k8s.io"},
		"hooks": []any{"outgoing", "incoming"}, "writes": []any{"spec"}, "configSchema": map[string]any{"type": "object"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRegisterTwicePanics(t *testing.T) {
	before := registered
	registered = nil
	defer func() { registered = before }()
	Register(Manifest{Name: "one"})
	defer func() {
		if recover() == nil {
			t.Error("a second registration is accepted")
		}
	}()
	Register(Manifest{Name: "two"})
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		glob, s string
		want    bool
	}{
		{"*", "", true}, {"*", "x/y", true}, {"a*", "ab", true}, {"a*c", "abbc", true}, {"a*c", "abbd", false},
		{"*.example/*", "x.example/y", true}, {"*.example/*", "example/y", false}, {"a?", "a", false},
		{"a?", "ab", true}, {"**", "", true}, {"", "", true}, {"", "a", false}, {"*a*a*a*", "aabb", false},
		{"literal", "literal", true}, {"[ab]", "a", false},
	} {
		if got := Match(test.glob, test.s); got != test.want {
			t.Errorf("Match(%q, %q) = %v", test.glob, test.s, got)
		}
	}
}
