// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRaiseInotifyLimit checks that a limit is raised, and never lowered.
func TestRaiseInotifyLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limit")
	for before, want := range map[string]string{"128\n": "2048", "8192\n": "8192\n"} {
		require.NoError(t, os.WriteFile(path, []byte(before), 0o600))
		require.NoError(t, raiseInotifyLimit(path, 2048))
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, want, string(content))
	}
	require.NoError(t, os.WriteFile(path, []byte("many"), 0o600))
	require.ErrorContains(t, raiseInotifyLimit(path, 2048), "many")
	require.ErrorContains(t, raiseInotifyLimit(path+"-missing", 2048), "no such file")
}
