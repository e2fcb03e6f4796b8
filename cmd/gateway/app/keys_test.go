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
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// TestKeyFiles checks that replaced keys are read, and that the last key is returned with an error while its file is
// missing or contains no key.
func TestKeyFiles(t *testing.T) {
	k := keyFiles{current: t.TempDir(), other: t.TempDir()}
	write := func(directory string, content []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(directory, wire.PrivateKeyField), content, 0o600))
	}
	publicKeys := func(keys ...[]byte) (public [][]byte) {
		for _, key := range keys {
			p := wgtypes.Key(key).PublicKey()
			public = append(public, p[:])
		}
		return public
	}
	key, public, err := k.read(false, nil)
	require.Nil(t, key)
	require.Nil(t, public)
	require.ErrorContains(t, err, "waiting for the private key")
	write(k.current, []byte("short"))
	key, _, err = k.read(false, nil)
	require.Nil(t, key)
	require.ErrorContains(t, err, "has 5 bytes instead of 32: delete the Secret")

	first, second, third := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32), bytes.Repeat([]byte{3}, 32)
	write(k.current, first)
	key, public, err = k.read(false, nil)
	require.NoError(t, err)
	require.Equal(t, first, key)
	require.Equal(t, publicKeys(first), public)
	for name, damage := range map[string]func(){
		"short":   func() { write(k.current, []byte("short")) },
		"long":    func() { write(k.current, bytes.Repeat([]byte{3}, 5000)) },
		"empty":   func() { write(k.current, nil) },
		"missing": func() { require.NoError(t, os.Remove(filepath.Join(k.current, wire.PrivateKeyField))) },
	} {
		damage()
		key, public, err = k.read(false, nil)
		require.ErrorContains(t, err, "the last one is used", name)
		require.Equal(t, first, key, name)
		require.Equal(t, publicKeys(first), public)
		write(k.current, first)
	}
	write(k.current, second)
	key, _, err = k.read(false, nil)
	require.NoError(t, err)
	require.Equal(t, second, key)

	write(k.other, third)
	key, public, err = k.read(false, nil)
	require.NoError(t, err)
	require.Equal(t, second, key, "the other key is not in use yet")
	require.Equal(t, publicKeys(second, third), public)
	key, public, err = k.read(true, nil)
	require.NoError(t, err)
	require.Equal(t, third, key)
	require.Equal(t, publicKeys(third, second), public)
	require.NoError(t, os.Remove(filepath.Join(k.other, wire.PrivateKeyField)))
	key, public, err = k.read(true, nil)
	require.ErrorContains(t, err, "the last one is used")
	require.Equal(t, third, key)
	require.Equal(t, publicKeys(third, second), public)
	write(k.other, third)
	require.NoError(t, os.Remove(filepath.Join(k.current, wire.PrivateKeyField)))
	_, public, err = k.read(true, nil)
	require.NoError(t, err)
	require.Equal(t, publicKeys(third), public, "the replaced key is gone")
}

// TestKeysOfSeveralPods checks that a pod that does not have all keys yet uses one that the peer accepts, and that a pod tries the other
// one if the peer does not answer.
func TestKeysOfSeveralPods(t *testing.T) {
	k := keyFiles{current: t.TempDir(), other: t.TempDir()}
	private := func(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }
	mount := func(directory string, n byte) {
		require.NoError(t, os.WriteFile(filepath.Join(directory, wire.PrivateKeyField), private(n), 0o600))
	}
	uses := func(want byte, isOther bool, accepted ...byte) {
		t.Helper()
		var public [][]byte
		for _, n := range accepted {
			public = append(public, publicKey(private(n)))
		}
		key, own, err := k.read(isOther, public)
		require.NoError(t, err)
		require.Equal(t, private(want), key)
		require.Equal(t, publicKey(private(want)), own[0])
	}
	mount(k.current, 1)
	uses(1, false)
	uses(1, true, 1, 2) // the other pod has changed to a key that this one does not have yet
	mount(k.other, 3)
	uses(1, true, 1, 2) // this is not the one that the peer accepts
	k.tryOther()
	uses(1, true, 1, 2) // and is not tried
	mount(k.other, 2)
	uses(2, true, 1, 2)
	k.tryOther()
	uses(1, true, 1, 2)
	k.tryOther()
	uses(2, true, 1, 2)
	uses(1, true, 1)
}

// TestAnnouncedKeys checks which keys of a peer are accepted.
func TestAnnouncedKeys(t *testing.T) {
	key := func(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }
	pair := func(a, b byte) string { return networking.FormatKeys([][]byte{key(a), key(b)}) }
	for name, c := range map[string]struct {
		spec      byte
		other     string
		announced [][]byte
		isSettled bool
		wantSpec  byte
		wantOther string
	}{
		"the same key":                         {1, "", [][]byte{key(1)}, true, 1, ""},
		"a next key":                           {1, "", [][]byte{key(1), key(2)}, false, 1, pair(1, 2)},
		"the next key is in use":               {1, pair(1, 2), [][]byte{key(2), key(1)}, false, 2, pair(2, 1)},
		"the replaced key is gone":             {2, pair(2, 1), [][]byte{key(2)}, true, 2, ""},
		"gone for a moment":                    {2, pair(2, 1), [][]byte{key(2)}, false, 2, pair(2, 1)},
		"a pod with the replaced key only":     {2, pair(2, 1), [][]byte{key(1)}, false, 2, pair(2, 1)},
		"it stays with the replaced key":       {2, pair(2, 1), [][]byte{key(1)}, true, 1, pair(1, 2)},
		"a damaged order":                      {2, pair(1, 2), [][]byte{key(1), key(2)}, true, 2, pair(2, 1)},
		"in use before it was accepted":        {1, "", [][]byte{key(2), key(1)}, false, 1, pair(1, 2)},
		"another next key":                     {1, pair(1, 2), [][]byte{key(1), key(3)}, false, 1, pair(1, 3)},
		"a key that an administrator replaced": {4, pair(1, 2), [][]byte{key(1), key(2)}, true, 4, pair(1, 2)},
		"unknown keys":                         {1, pair(1, 2), [][]byte{key(5), key(6)}, true, 1, pair(1, 2)},
		"a damaged annotation":                 {1, "1,2", [][]byte{key(1), key(2)}, false, 1, pair(1, 2)},
		"no key":                               {1, pair(1, 2), nil, true, 1, pair(1, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			object := &networking.PublicKey{Spec: networking.PublicKeySpec{PublicKey: key(c.spec)}}
			if c.other != "" {
				setAnnotation(object, wire.OtherPublicKeyAnnotation, c.other)
			}
			acceptAnnounced(object, c.announced, c.isSettled)
			require.Equal(t, key(c.wantSpec), object.Spec.PublicKey)
			require.Equal(t, c.wantOther, object.Annotations[wire.OtherPublicKeyAnnotation])
		})
	}
}
