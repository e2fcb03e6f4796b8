// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

import (
	"cmp"
	"math"
	"strconv"

	"github.com/refract-project/refract/internal/leb128"
)

// Names under which an instrumented module exports its counters. Only the host can write the counters, because a module
// cannot refer to a global that it does not declare.
const (
	// GlobalName is the name of a mutable i64 with the remaining units of fuel. The host sets it before each call. A
	// negative value means that the last call ran out of fuel.
	GlobalName = "refract_fuel"
	// DepthName is the name of a mutable i32 with the remaining stack units. The host never sets it, because every
	// call that returns restores it. A negative value means that the last call recursed too deeply.
	DepthName = "refract_depth"
	// StatePrefix is the prefix of the names of exports for the module's own mutable globals. It is followed by the
	// number of the global, starting at 0. With these exports, a host can restore an earlier state of an instance.
	// The exports exist only if the globals and the memory are the module's only state: the module changes no tables,
	// drops no segments, and has no globals of a reference or vector type.
	StatePrefix = "refract_state_"
)

// maxState is the maximum number of globals that are exported. For a module with more globals, a host must create a
// new instance instead.
const maxState = 64

// Default values of Options.
const (
	DefaultStart       = 200_000_000 // takes 6–30 ms
	DefaultCallDepth   = 65_536
	DefaultMemoryPages = 256 // 16 MiB
)

// Options are the limits that are inserted into the module. Zero values mean the defaults.
type Options struct {
	// Start is the fuel of a new instance, in units. It is available to the start function, and to exported functions
	// until the host sets GlobalName.
	Start int64
	// CallDepth limits the stack, in stack units. A unit is a frame of up to 8 locals and 64 instructions.
	CallDepth uint32
	// MemoryPages limits the memory, in pages of 64 KiB. If the module has a lower maximum, the maximum of the module
	// applies.
	MemoryPages uint32
	// DropNames removes the names of functions. If it is false, they are kept, because the stack traces of traps
	// contain them.
	DropNames bool
	// Limits are limits on the binary.
	Limits Limits
}

// Limits keep a small binary from causing much work or memory use in the compiler. Zero fields mean the defaults,
// which are sufficient for programs a hundred times as large as a plugin.
type Limits struct {
	Types         uint32 // function types; default 20,000
	Functions     uint32 // functions; the limit also applies to imports and exports; default 100,000
	Parameters    uint32 // parameters of a function; the limit also applies to results; default 256
	Locals        uint32 // locals of a function, including parameters; default 2,000
	FunctionBytes uint32 // size of a function in bytes; default 1 MiB
	// Estimated time, in microseconds, that loops, blocks and branches add to the compilation; default 2,000,000.
	CompilerWork  uint32
	Nesting       uint32 // nesting of blocks; default 16,384
	BranchTable   uint32 // labels of a br_table; default 65,536
	Globals       uint32 // globals; default 10,000
	Tables        uint32 // tables; default 16
	TableElements uint32 // elements of a table; the limit also applies to element segments; default 131,072
	Segments      uint32 // data segments; the limit also applies to element segments; default 100,000
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

// Instrument returns the module with a fuel counter and the limits of opts. It neither runs nor modifies wasm. The
// same input gives exactly the same output.
//
// Errors are of the types *FormatError, *UnsupportedError, *LimitError and *CollisionError. A nil error does not mean
// that the module is valid, because Instrument does not check types. The engine checks the types in the output.
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

// addCounters exports the two counters. Their globals come after all others, so that existing indexes stay valid.
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
		// If the memory is the module's only state, the depth is exported as a global of the state, so that the host
		// finds at least one such export. Restoring it has no effect, because the depth is the same before and after a
		// call.
		if len(m.mutable) == 0 {
			exports = appendU32(append(appendName(exports, StatePrefix+"0"), 3), c.depth)
			count++
		}
	}
	m.appendItems(sectionExport, m.exports, count, exports)
}

// appendItems adds encoded items to a vector section. count is the number of items in the section, and more is the
// number of added items.
func (m *module) appendItems(id byte, count, more uint32, items []byte) {
	s := &m.sections[id]
	out := appendU32(nil, count+more)
	if s.present {
		out = append(out, s.content[m.sectionReader(id).skipNumber():]...)
	}
	s.present, s.content = true, append(out, items...)
}

// Cause is the limit that has stopped a call.
type Cause int

// Causes that Stopped returns.
const (
	NotStopped Cause = iota // not stopped by a limit of this package
	OutOfFuel
	OutOfStack
)

// Stopped returns the limit of this package that has stopped a call. It uses the values of the two counters after a
// trap, because the trap itself looks like any other execution of `unreachable`.
func Stopped(fuel, depth uint64) Cause {
	switch {
	case int64(fuel) < 0:
		return OutOfFuel
	case int32(uint32(depth)) < 0:
		return OutOfStack
	}
	return NotStopped
}
