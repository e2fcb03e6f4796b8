// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/refract-project/refract/host/internal/guest"
	"github.com/refract-project/refract/internal/leb128"
)

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
	f64 = api.ValueTypeF64
)

// Names of the modules from which plugins import functions.
const (
	moduleRefract = "refract"
	moduleExtism  = "extism:host/env"
	moduleWASI    = "wasi_snapshot_preview1"
)

// hostFunctions contains all functions that plugins may import, by module and name.
var hostFunctions = sync.OnceValue(func() map[string]map[string]api.FunctionDefinition {
	ctx, all := context.Background(), map[string]map[string]api.FunctionDefinition{}
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	if err := guest.NewImports().Instantiate(ctx, r); err != nil {
		panic(err)
	}
	for _, module := range []string{moduleRefract, moduleExtism, moduleWASI} {
		all[module] = r.Module(module).ExportedFunctionDefinitions()
	}
	return all
})

// wasmModule is a small assembler for test modules. It generates the sections. The bodies of functions are given as
// bytes.
type wasmModule struct {
	types, imports, functions, exports, code, data [][]byte
	start                                          int // index of the start function; -1 if there is none
	pages                                          uint64
	importCount                                    int
}

func newModule() *wasmModule { return &wasmModule{start: -1, pages: 1} }

func uleb(n uint64) []byte { return binary.AppendUvarint(nil, n) }

func sleb(v int64) []byte { return leb128.AppendSigned(nil, v) }

func wasmName(s string) []byte { return append(uleb(uint64(len(s))), s...) }

func vector(items [][]byte) []byte {
	out := uleb(uint64(len(items)))
	for _, i := range items {
		out = append(out, i...)
	}
	return out
}

func (m *wasmModule) typ(params, results []byte) uint64 {
	t := append([]byte{0x60}, append(uleb(uint64(len(params))), params...)...)
	t = append(t, append(uleb(uint64(len(results))), results...)...)
	m.types = append(m.types, t)
	return uint64(len(m.types) - 1)
}

// importFunc adds an imported function. It must be called before the first call of function.
func (m *wasmModule) importFunc(module, name string, params, results []byte) uint64 {
	t := m.typ(params, results)
	m.imports = append(m.imports, append(append(append(wasmName(module), wasmName(name)...), 0), uleb(t)...))
	m.importCount++
	return uint64(m.importCount - 1)
}

// function adds a function. The body has no locals and no final end. If export is empty, the function is not
// exported.
func (m *wasmModule) function(export string, params, results, body []byte) uint64 {
	m.functions = append(m.functions, uleb(m.typ(params, results)))
	body = append(append([]byte{0}, body...), 0x0b)
	m.code = append(m.code, append(uleb(uint64(len(body))), body...))
	index := uint64(m.importCount + len(m.functions) - 1)
	if export != "" {
		m.exports = append(m.exports, append(append(wasmName(export), 0), uleb(index)...))
	}
	return index
}

func (m *wasmModule) text(at int64, s string) {
	seg := append([]byte{0, 0x41}, sleb(at)...)
	m.data = append(m.data, append(append(seg, 0x0b), wasmName(s)...))
}

func (m *wasmModule) bytes() []byte {
	out := []byte("\x00asm\x01\x00\x00\x00")
	add := func(id byte, content []byte) {
		out = append(append(append(out, id), uleb(uint64(len(content)))...), content...)
	}
	add(1, vector(m.types))
	if len(m.imports) > 0 {
		add(2, vector(m.imports))
	}
	add(3, vector(m.functions))
	add(5, append([]byte{1, 0}, uleb(m.pages)...))
	add(7, vector(append(m.exports, append(wasmName("memory"), 2, 0))))
	if m.start >= 0 {
		add(8, uleb(uint64(m.start)))
	}
	add(10, vector(m.code))
	if len(m.data) > 0 {
		add(11, vector(m.data))
	}
	return out
}

const manifestAt = 4096

// plugin adds the exports that every module of the native tier needs.
func (m *wasmModule) plugin(manifest string) *wasmModule {
	m.function("refract_abi_version", nil, []byte{i32}, []byte{0x41, 1})
	m.function("refract_manifest", nil, []byte{i64}, append([]byte{0x42}, sleb(manifestAt<<32|int64(len(manifest)))...))
	m.text(manifestAt, manifest)
	return m
}

const noopManifest = `{"name":"noop","version":"1","kinds":["*"],"hooks":["outgoing","incoming"],"writes":["*"],"capabilities":["skip"]}`

var noop = func() []byte {
	m := newModule().plugin(noopManifest)
	m.function("outgoing", nil, []byte{i32}, []byte{0x41, 0})
	m.function("incoming", nil, []byte{i32}, []byte{0x41, 0})
	return m.bytes()
}()
