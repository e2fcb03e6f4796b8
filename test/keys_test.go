// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// sharedKey matches the keys of Liqo's labels, annotations, taints and finalizers. ownKey matches Refract's own
	// keys.
	sharedKey = regexp.MustCompile(`^([a-z0-9-]+\.)*liqo\.io/[A-Za-z][A-Za-z0-9._-]*$`)
	ownKey    = regexp.MustCompile(`^[a-z0-9-]+\.refract\.io/[a-z][a-z0-9._-]*$`)
	version   = regexp.MustCompile(`/v[0-9]+((alpha|beta)[0-9]+)?$`)
	quoted    = regexp.MustCompile("`([^`=\n]+)(?:=[^`\n]*)?`") // a key in backquotes, without a value after =
)

// TestEveryKeyIsInTheTable compares the keys in the constants of api/wire, and Refract's own keys in other constants,
// with the table for users in docs/compatibility.md. Keys of Kubernetes are omitted, because they have their usual
// meaning.
func TestEveryKeyIsInTheTable(t *testing.T) {
	told := toldKeys(t)
	wire, own := constants(t, "../api/wire", sharedKey), constants(t, "..", ownKey)
	for key, name := range merged(wire, own) {
		if !told[key] {
			t.Errorf("docs/compatibility.md, Labels and annotations, lacks %s (%s)", key, name)
		}
	}
	for key := range told {
		if ownKey.MatchString(key) && own[key] == "" {
			t.Errorf("docs/compatibility.md tells of %s, which no constant has", key)
		}
	}
	for _, known := range []string{"liqo.io/storage", "plugins.refract.io/origin-uid", "controllers.refract.io/final-phase"} {
		if merged(wire, own)[known] == "" {
			t.Errorf("%s is not found among the constants: the search is broken", known)
		}
	}
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// toldKeys returns the keys in the first column of each table in the section Labels and annotations.
func toldKeys(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../docs/compatibility.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Labels and annotations\n")
	if !found {
		t.Fatal("docs/compatibility.md has no section Labels and annotations")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	told := map[string]bool{}
	for line := range strings.Lines(section) {
		if columns := strings.Split(line, "|"); len(columns) > 2 {
			for _, key := range quoted.FindAllStringSubmatch(columns[1], -1) {
				told[key[1]] = true
			}
		}
	}
	return told
}

// constants finds the string constants below a folder that match keys. Tests are omitted. The result contains the name
// of a constant for each key.
func constants(t *testing.T, folder string, keys *regexp.Regexp) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || len(entry.Name()) > 2 && entry.Name()[0] == '.'):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			if d, ok := declaration.(*ast.GenDecl); ok && d.Tok == token.CONST {
				for _, spec := range d.Specs {
					note(spec.(*ast.ValueSpec), path, keys, found)
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	return found
}

func note(spec *ast.ValueSpec, path string, keys *regexp.Regexp, found map[string]string) {
	for i, value := range spec.Values {
		literal, ok := value.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		text, err := strconv.Unquote(literal.Value)
		if err == nil && keys.MatchString(text) && !version.MatchString(text) {
			found[text] = spec.Names[i].Name + " in " + strings.TrimPrefix(filepath.ToSlash(path), "../")
		}
	}
}

// TestWhatAKeyIs checks that the search finds keys and nothing else.
func TestWhatAKeyIs(t *testing.T) {
	yes := []string{"liqo.io/remoteID", "offloading.liqo.io/origin", "virtual-node.liqo.io/not-allowed"}
	no := []string{"reflection.liqo.io", "kubernetes.io/os", "liqo.io/", "see liqo.io/type"}
	if bad := slices.DeleteFunc(slices.Clone(yes), sharedKey.MatchString); len(bad) > 0 {
		t.Errorf("%q are keys", bad)
	}
	if bad := slices.DeleteFunc(slices.Clone(no), func(s string) bool { return !sharedKey.MatchString(s) }); len(bad) > 0 {
		t.Errorf("%q are no keys", bad)
	}
	if !version.MatchString("plugins.refract.io/v1alpha1") || version.MatchString("plugins.refract.io/view") {
		t.Error("versions of groups are told from keys wrongly")
	}
}
