// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/api/wire"
)

// TestKeyFile checks that a replaced key is read, and that the last key is returned with an error while the file is
// missing or contains no key.
func TestKeyFile(t *testing.T) {
	k := keyFile{path: filepath.Join(t.TempDir(), wire.PrivateKeyField)}
	write := func(content []byte) { require.NoError(t, os.WriteFile(k.path, content, 0o600)) }
	key, err := k.read()
	require.Nil(t, key)
	require.ErrorContains(t, err, "waiting for the private key")
	write([]byte("short"))
	key, err = k.read()
	require.Nil(t, key)
	require.ErrorContains(t, err, "has 5 bytes instead of 32: delete the Secret")

	first, second := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	write(first)
	key, err = k.read()
	require.NoError(t, err)
	require.Equal(t, first, key)
	for name, damage := range map[string]func(){
		"short":   func() { write([]byte("short")) },
		"long":    func() { write(bytes.Repeat([]byte{3}, 5000)) },
		"empty":   func() { write(nil) },
		"missing": func() { require.NoError(t, os.Remove(k.path)) },
	} {
		damage()
		key, err = k.read()
		require.ErrorContains(t, err, "the last one is used", name)
		require.Equal(t, first, key, name)
		write(first)
	}
	write(second)
	key, err = k.read()
	require.NoError(t, err)
	require.Equal(t, second, key)
}
