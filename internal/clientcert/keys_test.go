// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package clientcert

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProofs(t *testing.T) {
	t.Parallel()
	all := keys(t)
	for name, key := range all {
		request, err := New(rome, key)
		require.NoError(t, err)
		proof, err := Prove(request, key)
		require.NoError(t, err, name)
		assert.True(t, Proves(request, proof, key.Public()), name)
		assert.False(t, Proves(append(request, '\n'), proof, key.Public()), "%s: another request", name)
		for other, another := range all {
			assert.Equal(t, other == name, Proves(request, proof, another.Public()), "%s by %s", name, other)
		}
		bare, err := key.Sign(rand.Reader, request, crypto.Hash(0))
		if err == nil {
			assert.False(t, Proves(request, bare, key.Public()), "%s: signed for another purpose", name)
		}
	}
	assert.False(t, Proves(nil, nil, nil))
}

// TestKeysFollowEachOther checks that a key remains valid until a request is made with a later key, because a response
// may be lost.
func TestKeysFollowEachOther(t *testing.T) {
	t.Parallel()
	var public []crypto.PublicKey
	for range 12 {
		key, _, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		public = append(public, key)
	}
	has := func(keys Keys) (found []int) {
		for i, key := range public {
			if keys.Has(key) {
				found = append(found, i)
			}
		}
		return found
	}
	after := func(keys Keys, present, next int) Keys {
		keys, err := ParseKeys(keys.String()).After(public[present], public[next])
		require.NoError(t, err)
		return keys
	}
	first, err := Fingerprint(public[0])
	require.NoError(t, err)
	keys := Keys{first}
	assert.Equal(t, []int{0}, has(keys))
	keys = after(keys, 0, 1)
	assert.Equal(t, []int{0, 1}, has(keys))
	assert.Equal(t, keys, after(keys, 0, 1), "asked again")
	keys = after(keys, 0, 2) // the response is lost
	assert.Equal(t, []int{0, 1, 2}, has(keys))
	keys = after(keys, 1, 3) // the response is received
	assert.Equal(t, []int{1, 3}, has(keys))
	for next := 4; next < 12; next++ {
		keys = after(keys, 1, next)
	}
	assert.Equal(t, []int{1, 7, 8, 9, 10, 11}, has(keys), "there is a bound")
	assert.Empty(t, has(ParseKeys("")))
	assert.Empty(t, has(ParseKeys(" , sha256:,"+first[:20])))
}
