// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every annotation that package wire says users write is known when they get the case of its letters wrong.
func TestUserAnnotationsAreThoseOfWire(t *testing.T) {
	files, err := filepath.Glob("../../../../api/wire/*.go")
	require.NoError(t, err)
	var want []string
	for _, path := range files {
		file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, declaration := range file.Decls {
			if group, ok := declaration.(*ast.GenDecl); ok && strings.HasPrefix(group.Doc.Text(), "Annotations for users") {
				want = append(want, annotationsIn(t, group)...)
			}
		}
	}
	got := slices.Clone(userAnnotations)
	slices.Sort(got)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("annotations are %q, package wire has %q", got, want)
	}
}

// annotationsIn returns the values of the constants of a group whose names end with Annotation.
func annotationsIn(t *testing.T, group *ast.GenDecl) (values []string) {
	t.Helper()
	for _, spec := range group.Specs {
		constant := spec.(*ast.ValueSpec)
		if !strings.HasSuffix(constant.Names[0].Name, "Annotation") {
			continue
		}
		value, err := strconv.Unquote(constant.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		values = append(values, value)
	}
	return values
}
