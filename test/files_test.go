// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoTwoFilesAreAPluralApart fails if a folder contains files with names such as status.go and statuses.go, because
// such names do not show how the files differ.
func TestNoTwoFilesAreAPluralApart(t *testing.T) {
	files := map[string]bool{}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			files[path] = true
		}
		return err
	}))
	for _, pair := range pluralApart(files) {
		t.Errorf("%s and %s are a plural apart: name both after what is in them", pair[0], pair[1])
	}
	if !files["../test/files_test.go"] {
		t.Errorf("this file is not among the %d that were found", len(files))
	}
	for plural, want := range map[string]int{"a/statuses.go": 1, "a/statuss.go": 1, "b/statuses.go": 0, "a/statuses_test.go": 0, "a/state.go": 0} {
		if pairs := pluralApart(map[string]bool{"a/status.go": true, plural: true}); len(pairs) != want {
			t.Errorf("a/status.go and %s: found %s, want %d", plural, pairs, want)
		}
	}
}

// pluralApart returns pairs of names that differ only by a plural s or es.
func pluralApart(files map[string]bool) (pairs [][2]string) {
	for file := range files {
		for _, ending := range []string{"_test.go", ".go"} {
			name, ok := strings.CutSuffix(file, ending)
			for _, plural := range []string{name + "s" + ending, name + "es" + ending} {
				if ok && files[plural] {
					pairs = append(pairs, [2]string{file, plural})
				}
			}
			if ok {
				break
			}
		}
	}
	return pairs
}
