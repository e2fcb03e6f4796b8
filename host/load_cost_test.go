// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/refract-project/refract/host/fuel"
)

// costly returns small modules that take long to compile, by their cause: values that blocks and branches carry.
func costly(n int) map[string][]byte {
	const values = 250
	many := bytes.Repeat([]byte{i32}, values)
	body := func(takes bool, code func(typ []byte) []byte) []byte {
		m := newModule().plugin(noopManifest)
		params := []byte(nil)
		if takes {
			params = many
		}
		typ := sleb(int64(m.typ(params, many)))
		var b []byte
		if takes {
			b = bytes.Repeat([]byte{0x41, 0}, values)
		}
		b = append(append(b, code(typ)...), bytes.Repeat([]byte{0x1a}, values)...)
		m.function("outgoing", nil, []byte{i32}, append(b, 0x41, 0))
		m.function("incoming", nil, []byte{i32}, []byte{0x41, 0})
		return m.bytes()
	}
	inBlock := func(branch []byte) func(typ []byte) []byte {
		return func(typ []byte) []byte {
			return slices.Concat([]byte{0x02}, typ, bytes.Repeat([]byte{0x41, 0}, values), branch, []byte{0x0b})
		}
	}
	return map[string][]byte{
		"blocks":     body(true, func(typ []byte) []byte { return bytes.Repeat(slices.Concat([]byte{0x02}, typ, []byte{0x0b}), n) }),
		"loops":      body(true, func(typ []byte) []byte { return bytes.Repeat(slices.Concat([]byte{0x03}, typ, []byte{0x0b}), n) }),
		"br_if":      body(false, inBlock(bytes.Repeat([]byte{0x41, 0, 0x0d, 0}, n))),
		"br_table":   body(false, inBlock(slices.Concat([]byte{0x41, 0, 0x0e}, uleb(uint64(n)), make([]byte, n+1)))),
		"br_table 2": body(false, inBlock(bytes.Repeat(slices.Concat([]byte{0x41, 0, 0x0e}, uleb(100), make([]byte, 101)), n/100))),
	}
}

// Costly exports costly, for the seeds of the fuzzer.
func Costly(n int) map[string][]byte { return costly(n) }

func TestCostlyModulesAreRefused(t *testing.T) {
	h := newHost(t)
	for name, wasm := range costly(20_000) {
		_, err := h.Load(t.Context(), "costly", wasm, PluginConfig{})
		var limit *fuel.LimitError
		if !errors.As(err, &limit) || !strings.Contains(limit.What, "compiling") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The same modules with ordinary numbers of values must be loaded.
	for name, wasm := range costly(200) {
		if _, err := h.Load(t.Context(), "ordinary", wasm, PluginConfig{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLongNames checks that long function names are truncated in errors, because errors become Events.
func TestLongNames(t *testing.T) {
	h, long := newHost(t), strings.Repeat("n", 1<<20)
	m := newModule().plugin(noopManifest)
	m.function("outgoing", nil, []byte{i32}, []byte{0x00})
	m.function("incoming", nil, []byte{i32}, []byte{0x41, 0})
	// The long name is given to function 2, which is the export outgoing.
	names := append([]byte{1}, append(uleb(2), wasmName(long)...)...)
	section := append(wasmName("name"), append(append([]byte{1}, uleb(uint64(len(names)))...), names...)...)
	wasm := append(append(m.bytes(), 0), append(uleb(uint64(len(section))), section...)...)
	p := mustLoad(t, h, "p", wasm, PluginConfig{})
	_, _, err := run(t, serviceObject(), p)
	var trap *TrapError
	if !errors.As(err, &trap) || len(err.Error()) > 1000 || !strings.Contains(err.Error(), "nnnn") {
		t.Errorf("%T of %d bytes", err, len(err.Error()))
	}

	imports := newModule()
	imports.importFunc(long, long, nil, nil)
	exports := newModule().plugin(noopManifest)
	exports.function(long, nil, nil, nil)
	writes := newModule().plugin(`{"name":"p","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":[` + strings.Repeat(`"a",`, 10_000) + `"a"]}`)
	writes.function("outgoing", nil, []byte{i32}, []byte{0x41, 0})
	for name, m := range map[string]*wasmModule{"imports": imports, "exports": exports, "writes": writes} {
		if _, err := h.Load(context.Background(), "p", m.bytes(), PluginConfig{}); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%s: %.100v", name, err)
		}
	}
}
