// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package compiler

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPruneRemovesTheLeastRecentlyUsed checks that pruneFiles removes only as many files as necessary, and no files
// that a process uses.
func TestPruneRemovesTheLeastRecentlyUsed(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	age := func(path string, days int) {
		at := now.Add(-time.Duration(days) * 24 * time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(dir, path), at, at))
	}
	for path, days := range map[string]int{"a/new": 1, "a/old": 5, "other-version/older": 9, "a/middle": 3, scratchPrefix + "1/v/code": 20} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), make([]byte, 100), 0o600))
		age(path, days)
	}
	require.NoError(t, pruneFolder(dir, 250))
	for path, stays := range map[string]bool{"a/new": true, "a/middle": true, "a/old": false, "other-version/older": false, scratchPrefix + "1/v/code": true} {
		if _, err := os.Stat(filepath.Join(dir, path)); (err == nil) != stays {
			t.Errorf("%s stays: %t", path, err == nil)
		}
	}
	// A scratch folder of this age was left over from a killed process and must be removed.
	age(scratchPrefix+"1", 1)
	c := &codeCache{dir: dir, scratch: filepath.Join(dir, scratchPrefix+"2", "v")}
	require.NoError(t, c.pruneFiles())
	if _, err := os.Stat(filepath.Join(dir, scratchPrefix+"1")); err == nil {
		t.Error("an abandoned scratch folder stays")
	}
}
