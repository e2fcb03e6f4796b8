// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peerings

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSecretFile(t *testing.T) {
	old := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(old) })
	folder := t.TempDir()
	path := filepath.Join(folder, "milan.yaml")
	alone := func(want ...string) {
		t.Helper()
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		assert.Equal(t, want, names)
	}

	file, err := newSecretFile(path)
	require.NoError(t, err)
	file.discardPending()
	alone()
	// A file that other users can read is replaced by a new file, because another user may have opened it.
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o644))
	before, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = before.Close() })
	file, err = newSecretFile(path)
	require.NoError(t, err)
	require.NoError(t, file.writeContent([]byte("secret")))
	alone("milan.yaml")
	found, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), found.Mode())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "secret", string(content))
	text := make([]byte, 10)
	n, _ := before.Read(text)
	assert.Equal(t, "old", string(text[:n]))

	link := filepath.Join(folder, "link")
	require.NoError(t, os.Symlink("elsewhere", link))
	for _, path := range []string{link, folder, os.DevNull, filepath.Join(folder, "absent", "file")} {
		_, err := newSecretFile(path)
		assert.Error(t, err, path)
	}
}

func TestExposedOutputs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	file, err := os.Create(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	for mode, want := range map[os.FileMode]os.FileMode{0o600: 0, 0o400: 0, 0o640: 0o640, 0o644: 0o644, 0o604: 0o604} {
		require.NoError(t, file.Chmod(mode))
		assert.Equal(t, want, exposedMode(file), "%o", mode)
	}
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = reader.Close(); _ = writer.Close() })
	assert.Zero(t, exposedMode(writer))
}
