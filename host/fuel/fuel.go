// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

import (
	"cmp"
	"math"
	"strconv"

	"github.com/refract-project/refract/internal/leb128"
)

// Names under which an instrumented module exports its counters. Only the host can write them, because a module cannot
// refer to a global that it does not declare.
const (
	// GlobalName is a mutable i64, the remaining units of fuel. The host sets it before each call. A negative value
	// means that the last call ran out of fuel.
	GlobalName = "refract_fuel"
	// DepthName is a mutable i32, the remaining stack units. Every call that returns restores it, so the host never
	// sets it. A negative value means that the last call recursed too deeply.
	DepthName = "refract_depth"
	// StatePrefix, followed by a number from 0 on, is the name of each of the module's own mutable globals, for a host
	// that restores an earlier state of an instance. They are exported if they and the memory are the module's only
	// state: if it changes no table, drops no segment, and has no global of a reference or vector type.
	StatePrefix = "refract_state_"
)

// maxState limits the exported globals. A module with more of them is restored by creating a new instance.
const maxState = 64

// Defaults of Options.
const (
	DefaultStart       = 200_000_000 // 6–30 ms
	DefaultCallDepth   = 65_536
	DefaultMemoryPages = 256 // 16 MiB
)

// Options are the limits that become part of the module. The zero value means the defaults.
type Options struct {
	// Start is the fuel of a new instance, in units: for its start function, and for exported functions until the host
	// sets GlobalName.
	Start int64
	// CallDepth limits the stack, in stack units: a unit is a frame of up to 8 locals and 64 instructions.
	CallDepth uint32
	// MemoryPages limits the memory, in pages of 64 KiB. A lower maximum in the module is kept.
	MemoryPages uint32
	// DropNames removes the functions' names. Otherwise they are kept for the stack traces of traps.
	DropNames bool
	// Limits limit the binary itself.
	Limits Limits
}

// Limits prevent a small binary from costing the compiler much time or memory. Zero fields mean the defaults, which
// exceed the needs of programs a hundred times larger than a plugin.
type Limits struct {
	Types         uint32 // function types; 20,000
	Functions     uint32 // functions, as well as imports and exports; 100,000
	Parameters    uint32 // parameters, and results, of a function; 256
	Locals        uint32 // locals of a function, parameters included; 2,000
	FunctionBytes uint32 // size of a function in bytes; 1 MiB
	CompilerWork  uint32 // estimated microseconds that loops, blocks and branches add to compiling; 2,000,000
	Nesting       uint32 // blocks inside one another; 16,384
	BranchTable   uint32 // labels of a br_table; 65,536
	Globals       uint32 // globals; 10,000
	Tables        uint32 // tables; 16
	TableElements uint32 // elements of a table and of an element segment; 131,072
	Segments      uint32 // data segments, and element segments; 100,000
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Types:         cmp.Or(l.Types, 20_000),
		Functions:     cmp.Or(l.Functions, 100_000),
		Parameters:    cmp.Or(l.Parameters, 256),
		Locals:        cmp.Or(l.Locals, 2_000),
		FunctionBytes: cmp.Or(l.FunctionBytes, 1<<20),
		CompilerWork:  cmp.Or(l.CompilerWork, 2_000_000),
		Nesting:       cmp.Or(l.Nesting, 16_384),
		BranchTable:   cmp.Or(l.BranchTable, 65_536),
		Globals:       cmp.Or(l.Globals, 10_000),
		Tables:        cmp.Or(l.Tables, 16),
		TableElements: cmp.Or(l.TableElements, 131_072),
		Segments:      cmp.Or(l.Segments, 100_000),
	}
}

// Instrument returns the module with a fuel counter and the limits of opts built in. It neither runs nor changes wasm.
// The same input gives the same output, byte for byte.
//
// Errors are a *FormatError, *UnsupportedError, *LimitError or *CollisionError. A nil error does not mean that the
// module is valid: the engine checks the types of the output.
func Instrument(wasm []byte, opts Options) ([]byte, error) {
	return instrumentModule(wasm, opts, maxChunk, minRest)
}

func instrumentModule(wasm []byte, opts Options, chunk int64, rest uint64) ([]byte, error) {
	m := &module{limits: opts.Limits.withDefaults(), pages: cmp.Or(opts.MemoryPages, DefaultMemoryPages), chunk: chunk, rest: rest}
	if err := m.parseModule(wasm); err != nil {
		return nil, err
	}
	depth := min(cmp.Or(opts.CallDepth, DefaultCallDepth), math.MaxInt32)
	if err := m.weighRecursion(depth); err != nil {
		return nil, err
	}
	if opts.DropNames {
		m.names = nil
	}
	m.rewriteCode()
	m.addCounters(cmp.Or(opts.Start, DefaultStart), depth)
	return m.encodeModule(), nil
}

func (m *module) fuelCounters() counters { return counters{fuel: m.globals, depth: m.globals + 1} }

func (m *module) rewriteCode() {
	if !m.sections[sectionCode].present {
		return
	}
	c := m.fuelCounters()
	out := appendU32(make([]byte, 0, 2*len(m.sections[sectionCode].content)), uint32(len(m.functions)))
	var body []byte
	for i := range m.functions {
		body = m.functions[i].appendBody(body[:0], c)
		out = append(appendU32(out, uint32(len(body))), body...)
	}
	m.sections[sectionCode].content = out
}

// addCounters appends the two globals, so that no index in the module changes, and exports them.
func (m *module) addCounters(start int64, depth uint32) {
	c := m.fuelCounters()
	globals := leb128.AppendSigned([]byte{typeI64, 1, opI64Const}, start)
	globals = append(globals, opEnd, typeI32, 1, opI32Const)
	globals = append(leb128.AppendSigned(globals, int64(depth)), opEnd)
	m.appendItems(sectionGlobal, m.globals-m.importedGlobals, 2, globals)

	exports := appendU32(append(appendName(nil, GlobalName), 3), c.fuel)
	exports = appendU32(append(appendName(exports, DepthName), 3), c.depth)
	count := uint32(2)
	if !m.hidden && len(m.mutable) <= maxState {
		for n, index := range m.mutable {
			exports = appendU32(append(appendName(exports, StatePrefix+strconv.Itoa(n)), 3), index)
			count++
		}
		// A module whose only state is its memory exports the depth instead, which is the same before and after a call.
		if len(m.mutable) == 0 {
			exports = appendU32(append(appendName(exports, StatePrefix+"0"), 3), c.depth)
			count++
		}
	}
	m.appendItems(sectionExport, m.exports, count, exports)
}

// appendItems adds encoded items to a vector section with count items.
func (m *module) appendItems(id byte, count, more uint32, items []byte) {
	s := &m.sections[id]
	out := appendU32(nil, count+more)
	if s.present {
		out = append(out, s.content[m.sectionReader(id).skipNumber():]...)
	}
	s.present, s.content = true, append(out, items...)
}

// Cause is the reason why a call stopped.
type Cause int

// The causes that Stopped can return.
const (
	NotStopped Cause = iota // no limit of this package
	OutOfFuel
	OutOfStack
)

// Stopped returns the limit of this package that stopped the call, from the values of the two counters after a trap.
// The trap itself looks like any other execution of `unreachable`.
func Stopped(fuel, depth uint64) Cause {
	switch {
	case int64(fuel) < 0:
		return OutOfFuel
	case int32(uint32(depth)) < 0:
		return OutOfStack
	}
	return NotStopped
}
