// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/refract-project/refract/api/wire"
)

func TestReflectionLabels(t *testing.T) {
	want := map[string]string{"offloading.liqo.io/origin": "home", "offloading.liqo.io/destination": "milan"}
	first := wire.ReflectionLabels("home", "milan")
	if !maps.Equal(first, want) {
		t.Errorf("got %v, want %v", first, want)
	}
	first["more"] = "x"
	if second := wire.ReflectionLabels("home", "milan"); !maps.Equal(second, want) {
		t.Errorf("the map is shared: %v", second)
	}
}

// TestKeysAreValidAndUnique reads all constants from the sources, so that a new one cannot be forgotten. It checks
// that the API server accepts the keys, and that every key has only one name.
func TestKeysAreValidAndUnique(t *testing.T) {
	seen := map[string]string{}
	for name, value := range constants(t) {
		switch {
		case strings.HasSuffix(name, "Label"), strings.HasSuffix(name, "Annotation"), strings.HasSuffix(name, "Taint"), strings.HasSuffix(name, "Finalizer"):
			if problems := validation.IsQualifiedName(value); len(problems) > 0 {
				t.Errorf("%s = %q: %v", name, value, problems)
			}
			if other, found := seen[value]; found {
				t.Errorf("%s and %s are both %q", name, other, value)
			}
			seen[value] = name
		case strings.HasSuffix(name, "Reason"):
			if value == "" || strings.ContainsAny(value, " .-") {
				t.Errorf("%s = %q is not a CamelCase reason", name, value)
			}
		}
	}
	if len(seen) < 30 {
		t.Fatalf("only %d keys were found", len(seen))
	}
}

// constants returns the string constants of the package by name.
func constants(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	found := map[string]string{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if value, err := strconv.Unquote(literal.Value); err == nil {
					found[spec.Names[0].Name] = value
				}
			}
			return true
		})
	}
	return found
}
