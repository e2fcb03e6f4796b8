// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginrevision

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// stored is a set of PluginModules by name.
type stored map[string]*plugins.PluginModule

func (s stored) get(_ context.Context, name string) (*plugins.PluginModule, error) {
	if module := s[name]; module != nil {
		return module, nil
	}
	return nil, apierrors.NewNotFound(plugins.GroupVersion.WithResource("pluginmodules").GroupResource(), name)
}

// store splits a module into parts, and returns them and the sha256 of the module.
func store(t *testing.T, wasm []byte) (stored, string) {
	t.Helper()
	sum := sha256.Sum256(wasm)
	digest := hex.EncodeToString(sum[:])
	parts, err := SplitModule(wasm, digest)
	require.NoError(t, err)
	all := stored{}
	for _, part := range parts {
		assert.LessOrEqual(t, len(part.Spec.Data), maxPartBytes)
		all[part.Name] = part
	}
	return all, digest
}

// noise returns bytes that cannot be compressed.
func noise(n int) []byte {
	source := rand.New(rand.NewPCG(1, 2))
	content := make([]byte, n)
	for i := range content {
		content[i] = byte(source.Uint32())
	}
	return content
}

func TestReadModule(t *testing.T) {
	wasm := noise(2_000_000)
	all, digest := store(t, wasm)
	require.Len(t, all, 3)
	read, err := ReadModule(t.Context(), all.get, digest, int64(len(wasm)))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(wasm, read))

	var missing *MissingError
	delete(all, plugins.PluginModuleName(digest, 1))
	_, err = ReadModule(t.Context(), all.get, digest, int64(len(wasm)))
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, plugins.PluginModuleName(digest, 1), missing.Part)

	_, err = ReadModule(t.Context(), func(context.Context, string) (*plugins.PluginModule, error) {
		return nil, apierrors.NewTimeoutError("the API server", 1)
	}, digest, int64(len(wasm)))
	assert.True(t, apierrors.IsTimeout(err), "%v", err)
}

// TestAlteredModules checks that a module that was changed in etcd is not returned, and that reading it takes only a
// few megabytes of memory, whatever it contains.
func TestAlteredModules(t *testing.T) {
	wasm := noise(10_000)
	bomb, _ := store(t, make([]byte, 256<<20))
	for name, alter := range map[string]func(first *plugins.PluginModule){
		"a changed byte":       func(first *plugins.PluginModule) { first.Spec.Data[5000] ^= 1 },
		"another module":       func(first *plugins.PluginModule) { *first = *part(t, noise(9_999)) },
		"no gzip":              func(first *plugins.PluginModule) { first.Spec.Data = wasm },
		"nothing":              func(first *plugins.PluginModule) { first.Spec.Data = nil },
		"a truncated end":      func(first *plugins.PluginModule) { first.Spec.Data = first.Spec.Data[:9_000] },
		"a longer module":      func(first *plugins.PluginModule) { *first = *part(t, append(noise(10_000), 0)) },
		"more parts":           func(first *plugins.PluginModule) { first.Spec.Parts = 1 << 30 },
		"a decompression bomb": func(first *plugins.PluginModule) { first.Spec.Data = firstPart(bomb).Spec.Data },
	} {
		t.Run(name, func(t *testing.T) {
			all, digest := store(t, wasm)
			alter(all[plugins.PluginModuleName(digest, 0)])
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := ReadModule(t.Context(), all.get, digest, int64(len(wasm)))
			runtime.ReadMemStats(&after)
			var damaged *DamagedError
			require.ErrorAs(t, err, &damaged)
			assert.Equal(t, plugins.PluginModuleName(digest, 0), damaged.Module)
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
		})
	}
}

// part returns the first part of a module.
func part(t *testing.T, wasm []byte) *plugins.PluginModule {
	t.Helper()
	all, _ := store(t, wasm)
	return firstPart(all)
}

func firstPart(all stored) *plugins.PluginModule {
	for _, module := range all {
		if module.Spec.Part == 0 {
			return module
		}
	}
	return nil
}
