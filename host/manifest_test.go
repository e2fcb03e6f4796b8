// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestManifestsAreShownAsTheyAre checks that texts that a terminal would display differently are rejected, because
// people read a manifest before they trust a module.
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

// TestManifestFieldsAbsentEmptyAndNull checks that a field that is absent, empty or null has the meaning that
// docs/abi.md documents, and that the error for a value of a wrong type names the field.
func TestManifestFieldsAbsentEmptyAndNull(t *testing.T) {
	fields := map[string]string{"name": `"x"`, "version": `"1"`, "kinds": `["*"]`, "hooks": `["outgoing"]`, "writes": `["spec"]`, "capabilities": `["skip"]`, "configSchema": `{"type":"object"}`}
	parse := func(changed, value string) (*Manifest, error) {
		var members []string
		for field, text := range fields {
			if field == changed {
				text = value
			}
			if text != "" {
				members = append(members, `"`+field+`":`+text)
			}
		}
		m, _, err := parseManifest([]byte("{" + strings.Join(members, ",") + "}"))
		return m, err
	}
	empty := map[string]string{"name": `""`, "version": `""`, "configSchema": `{}`}
	for field := range fields {
		for _, value := range []string{"", "null", cmp.Or(empty[field], "[]")} {
			m, err := parse(field, value)
			if needed := field == "name" || field == "kinds" || field == "hooks"; needed != (err != nil) {
				t.Errorf("%s is %q: %v", field, value, err)
			}
			if err == nil && (field == "writes" && len(m.Writes) > 0 || field == "capabilities" && len(m.Capabilities) > 0 || field == "version" && m.Version != "" || field == "configSchema" && len(m.ConfigSchema) > 0) {
				t.Errorf("%s is %q: %+v", field, value, m)
			}
		}
		for _, value := range []string{"false", "7"} {
			if _, err := parse(field, value); err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("%s is %s: %v, want an error that names the field", field, value, err)
			}
		}
	}
}
