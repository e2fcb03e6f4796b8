// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/source"
)

// TestLastGoodAcrossRestarts checks that the last good version of a plugin runs after a start if its file became
// broken while no process was running.
func TestLastGoodAcrossRestarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "when-needed")
	before := newWorldWith(t, dir)
	before.apply(map[string][]byte{
		"a.wasm": plugin(t, "1", "Service"), "a.yaml": []byte("priority: 7"),
		"gone.wasm": plugin(t, "1", "Service"),
	})
	before.apply(map[string][]byte{"a.wasm": plugin(t, "1", "Service"), "a.yaml": []byte("priority: 7")})

	after := newWorldWith(t, dir)
	got := after.apply(map[string][]byte{
		"a.wasm": []byte("rubbish"), "a.yaml": []byte("priority: 7"),
		"b.wasm":    plugin(t, "1", "Service"),
		"gone.wasm": []byte("rubbish"),
	})
	after.expect("Service", "service@default b@1 a@1")
	if s := got["a"]; s.State != source.Failed || !s.Running || s.Version != "1" || !strings.Contains(s.Message, "runs on") {
		t.Errorf("a: %+v", s)
	}
	// A plugin that was removed on purpose must not be restored.
	if s := got["gone"]; s.State != source.Failed || s.Running {
		t.Errorf("gone: %+v", s)
	}
	after.apply(map[string][]byte{"a.wasm": plugin(t, "2", "Service"), "b.wasm": plugin(t, "1", "Service")})
	after.expect("Service", "service@default a@2 b@1")
}

// TestLostModules checks that the last good version of a plugin whose module is lost, but not its options, continues
// to run, even after a restart.
func TestLostModules(t *testing.T) {
	dir := t.TempDir()
	options := map[string][]byte{"a.yaml": []byte("priority: 7")}
	before := newWorldWith(t, dir)
	before.apply(map[string][]byte{"a.wasm": plugin(t, "1", "Service"), "a.yaml": options["a.yaml"]})
	after := newWorldWith(t, dir)
	for when, w := range map[string]*world{"while it runs": before, "at the start": after} {
		s := w.apply(options)["a"]
		if s.State != source.Failed || !s.Running || !strings.Contains(s.Message, "there is no a.wasm beside a.yaml") {
			t.Errorf("%s: %+v", when, s)
		}
		w.expect("Service", "service@default a@1")
	}
	after.apply(nil)
	after.expect("Service", "service@default")
}

// TestLastGoodDamaged checks that stored files that a full disk or a crash has damaged are not used.
func TestLastGoodDamaged(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"cut off": func(content []byte) []byte { return content[:len(content)/2] },
		"altered": func(content []byte) []byte {
			was, is := base64.StdEncoding.EncodeToString([]byte("priority: 7")), base64.StdEncoding.EncodeToString([]byte("priority: 8"))
			return []byte(strings.Replace(string(content), was, is, 1))
		},
		"empty": func([]byte) []byte { return nil },
	} {
		dir := t.TempDir()
		newWorldWith(t, dir).apply(map[string][]byte{"a.wasm": plugin(t, "1", "Service"), "a.yaml": []byte("priority: 7")})
		path := filepath.Join(dir, "a.plugin.json")
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		write(t, dir, map[string][]byte{"a.plugin.json": damage(content)})
		after := newWorldWith(t, dir)
		if s := after.apply(map[string][]byte{"a.wasm": []byte("rubbish")})["a"]; s.Running {
			t.Errorf("%s: a damaged module runs: %+v", name, s)
		}
		after.expect("Service", "service@default")
	}
}
