// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A manifest is read by people before they trust a module: it is what a terminal shows of it.
func TestManifestsAreShownAsTheyAre(t *testing.T) {
	h := newHost(t)
	load := func(change func(*Manifest)) error {
		manifest := &Manifest{Name: "p", Version: "1", Kinds: []string{"Pod"}, Hooks: []string{"outgoing"}, Writes: []string{"metadata.labels"}}
		change(manifest)
		text, err := json.Marshal(manifest)
		require.NoError(t, err)
		m := newModule().plugin(string(text))
		m.function("outgoing", nil, []byte{i32}, []byte{0x41, 0})
		_, err = h.Load(context.Background(), "p", m.bytes(), PluginConfig{})
		return err
	}
	require.NoError(t, load(func(m *Manifest) { m.Name, m.Version = "étiquettes 标签", "1.0.0-β" }))
	for _, attack := range []string{"ok\x1b[2K\r\x1b[32mverified by Refract", "1\x1b]0;pwned\a", "a\u202eb", "zero\u200bwidth", "\u009b31m", "two\nlines", "tab\t", strings.Repeat("x", maxManifestText+1)} {
		for field, change := range map[string]func(*Manifest){
			"name":    func(m *Manifest) { m.Name = attack },
			"version": func(m *Manifest) { m.Version = attack },
			"kinds":   func(m *Manifest) { m.Kinds = append(slices.Clone(m.Kinds), attack) },
			"writes":  func(m *Manifest) { m.Writes = append(slices.Clone(m.Writes), attack) },
		} {
			err := load(change)
			if assert.ErrorContains(t, err, "its "+field+" has ", "%q", attack) {
				assert.Less(t, len(err.Error()), 1000)
				assert.NotContains(t, err.Error(), "\x1b")
			}
		}
	}
}
