// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

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

	"github.com/refract-project/refract/api/wire"
)

// TestUserAnnotationsAreComplete checks that the list contains every annotation that is documented for users.
func TestUserAnnotationsAreComplete(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var want []string
	for _, path := range files {
		file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, declaration := range file.Decls {
			if group, ok := declaration.(*ast.GenDecl); ok && strings.HasPrefix(group.Doc.Text(), "Annotations with which users determine") {
				want = append(want, annotationsIn(t, group)...)
			}
		}
	}
	got := slices.Clone(wire.UserAnnotations[:])
	slices.Sort(got)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the list has %q, the package %q", got, want)
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
