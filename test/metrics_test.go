// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	metricLiteral = regexp.MustCompile(`"((?:refract|liqo)_[a-z_]+)"`)
	metricRow     = regexp.MustCompile("(?m)^\\| `((?:refract|liqo)_[a-z_]+)`")
)

// TestEveryMetricIsInTheTable compares the exported metrics with docs/metrics.md.
func TestEveryMetricIsInTheTable(t *testing.T) {
	exported := map[string]string{}
	for _, folder := range []string{"../vk", "../controllers", "../internal/cmdutil", "../internal/admission", "../cmd/gateway", "../internal/homenames"} {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range metricLiteral.FindAllSubmatch(text, -1) {
				exported[string(match[1])] = path
			}
			return err
		})
		require.NoError(t, err)
	}
	page, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	told := map[string]bool{}
	for _, match := range metricRow.FindAllSubmatch(page, -1) {
		told[string(match[1])] = true
	}
	for name, path := range exported {
		if !told[name] {
			t.Errorf("docs/metrics.md lacks %s (%s)", name, path)
		}
	}
	for name := range told {
		if exported[name] == "" {
			t.Errorf("docs/metrics.md has %s, which is not exported", name)
		}
	}
}
