// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

import "slices"

// Costs of instructions in units of fuel. All instructions that are not listed here cost 1. If the run time of an
// instruction depends on an operand, the charge also depends on it (see bulks). The cost of a host call corresponds to
// its duration.
const (
	costImported = 256  // a host call takes 30–80 ns, and a unit about 0.1 ns
	costGrow     = 8192 // memory.grow clears a page; this is the size of a page in units of 8 bytes
)

// function is a function that the module defines, with information about its body, and the places at which code is
// inserted.
type function struct {
	signature signature
	body      []byte // locals and code of the function
	base      int    // offset of body in the binary
	code      int    // start of the instructions
	groups    uint32 // number of local declarations
	locals    uint64 // number of parameters and locals
	slots     uint64 // number of 8-byte slots for parameters, results and locals
	bulk      bool   // contains bulk instructions, which need an additional local
	size      uint64 // number of instructions
	blocks    uint64 // number of blocks, loops and ifs
	carried   uint64 // number of values that blocks take and return, and that branches carry

	entry   uint64   // charge at the entry of the function
	charges []uint64 // charges at the points of the function
	targets []uint32 // labels of all br_table instructions, concatenated
	points  []point
	loops   uint64
	weight  uint64 // weight of the function's frame in stack units; see calls.go
	pathIn  uint64 // weight of the heaviest chain of plain calls to this function, including its own frame
}

type pointKind uint8

const (
	pointCharge   pointKind = iota // point after an instruction at which a region may begin
	pointBulk                      // point before a bulk instruction
	pointCall                      // points before and after a direct call
	pointIndirect                  // points before and after a call_indirect
)

// point is a place in the body at which code may be inserted.
type point struct {
	kind       pointKind
	start, end int    // bounds of the instruction in the body
	arg        uint32 // by kind: 1 + position in function.charges (0: none), shift, or callee (after keepRecursive, cost of the call)
}

// readCode reads all function bodies.
func (m *module) readCode(r *reader) error {
	n, err := r.readCount("functions", m.limits.Functions)
	if err != nil {
		return err
	}
	if int(n) != len(m.functionTypes) {
		return r.errorf("%d functions have code, %d are declared", n, len(m.functionTypes))
	}
	m.functions = make([]function, n)
	return r.readEach(n, func(i uint32) error {
		size, err := r.readU32()
		if err != nil {
			return err
		}
		if err := r.checkLimit("bytes of a function", uint64(size), uint64(m.limits.FunctionBytes)); err != nil {
			return err
		}
		body, err := r.subReader(size, "code")
		if err != nil {
			return err
		}
		f := &m.functions[i]
		f.signature, f.body, f.base = m.types[m.functionTypes[i]], body.data, body.base
		if err := f.readLocals(body, &m.limits); err != nil {
			return err
		}
		return m.readBody(f, body)
	})
}

func (f *function) readLocals(r *reader, limits *Limits) (err error) {
	f.locals, f.slots = uint64(f.signature.params), f.signature.slots
	if f.groups, err = r.readCount("locals of a function", limits.Locals); err != nil {
		return err
	}
	for range f.groups {
		n, err := r.readU32()
		if err != nil {
			return err
		}
		if _, err := r.valueTypes(1); err != nil {
			return err
		}
		f.locals += uint64(n)
		f.slots += uint64(n) * slotsOf(r.data[r.pos-1])
		if err := r.checkLimit("locals of a function", f.locals, uint64(limits.Locals)); err != nil {
			return err
		}
	}
	f.code = r.pos
	return nil
}

// label is an open block, loop or if, or the function itself, as the target of branches.
type label struct {
	op     byte
	values uint64 // number of values that it takes and returns
	widest uint64 // maximum of the values of this block and the blocks around it
}

// readBody computes the charges of a function, and records the places at which they are inserted.
func (m *module) readBody(f *function, r *reader) error {
	m.events, f.points = m.events[:0], m.points[:0]
	cost := uint64(0)
	open := []label{{op: opBlock, values: f.signature.slots, widest: f.signature.slots}}
	for len(open) > 0 {
		in, err := r.readInstruction(&m.limits)
		if err != nil {
			return err
		}
		f.size++
		top := open[len(open)-1]
		values, widest := uint64(0), top.widest
		switch in.op {
		case opBlock, opLoop, opIf:
			f.blocks++
			if in.block >= int64(len(m.types)) {
				return r.errorf("type %d of %d", in.block, len(m.types))
			}
			if in.block >= 0 {
				values = m.types[in.block].slots
			}
			widest = max(widest, values)
			f.carried += values
		case opBr, opBrIf:
			if at := len(open) - 1 - int(in.index); at >= 0 {
				f.carried += open[at].values
			}
		case opBrTable:
			f.carried += (uint64(in.index) + 1) * (widest + 1)
		}
		switch in.op {
		case opLoop:
			f.loops++
			open = append(open, label{op: in.op, values: values, widest: widest})
		case opBlock, opIf:
			open = append(open, label{op: in.op, values: values, widest: widest})
		case opElse:
			if top.op != opIf {
				return r.errorf("else without if")
			}
			open[len(open)-1].op = opBlock
		case opEnd:
			open = open[:len(open)-1]
		}
		if err := m.checkIndices(f, r, in); err != nil {
			return err
		}
		if cost += m.costOf(in); isControl(in.op) {
			m.noteControl(f, in, cost, len(open) == 0)
			cost = 0
		}
		if err := r.checkLimit("nesting of blocks", uint64(len(open)), uint64(m.limits.Nesting)); err != nil {
			return err
		}
	}
	if !r.isDone() {
		return r.errorf("%d bytes after the end of the function", r.bytesLeft())
	}
	m.paths.measurePaths(f, m.events, m.chunk, m.rest)
	m.points = f.points
	f.points = slices.Clone(slices.DeleteFunc(f.points, func(p point) bool { return p.kind == pointCharge && p.arg == 0 }))
	f.targets = nil
	m.work += f.compilerWork(uint64(m.paths.splits))
	return r.checkLimit("estimated microseconds of compiling", m.work, uint64(m.limits.CompilerWork))
}

// compilerWork estimates the time, in microseconds, that a function adds to compiling code of the same size without
// branches. wazero keeps a value for each local at each loop, and visits all blocks for each block: 5 KB of code with
// 250 locals and 250 nested loops take 3 s, and 140 KB with 500 locals and 8000 loops take 50 s and 4 GB. wazero also
// creates a value for each value that a block takes or returns, and that a branch carries: 13 KB with 4000 loops of
// 250 values take 1.2 s, or 0.6 µs per value. splits is the number of blocks that this package adds.
func (f *function) compilerWork(splits uint64) uint64 {
	blocks := f.blocks + splits
	return 50*f.loops*f.locals + blocks*blocks/80 + f.carried
}

func isControl(op byte) bool {
	switch op {
	case opUnreachable, opBlock, opLoop, opIf, opElse, opEnd, opBr, opBrIf, opBrTable, opReturn:
		return true
	}
	return false
}

// noteControl records a control instruction and the place after it, because a charge may be inserted there.
func (m *module) noteControl(f *function, in instruction, cost uint64, last bool) {
	e := event{op: in.op, cost: cost, label: in.index, point: -1}
	switch in.op {
	case opLoop, opIf, opElse, opEnd, opBrIf:
		if last {
			break
		}
		e.point = len(f.points)
		f.points = append(f.points, point{kind: pointCharge, start: in.start, end: in.end})
	case opBrTable:
		labels := &reader{data: f.body, pos: in.end - in.labels}
		e.targets[0] = len(f.targets)
		for range in.index + 1 {
			to, _ := labels.readU32()
			f.targets = append(f.targets, to)
		}
		e.targets[1] = len(f.targets)
	}
	m.events = append(m.events, e)
}

// checkIndices rejects indexes of the globals and locals that this package adds, and records the places for charges.
func (m *module) checkIndices(f *function, r *reader, in instruction) error {
	switch in.op {
	case opLocalGet, opLocalSet, opLocalTee:
		if uint64(in.index) >= f.locals {
			return r.errorf("local %d of %d", in.index, f.locals)
		}
	case opGlobalGet, opGlobalSet:
		return m.globalIndex(r, in.index)
	case opCall:
		if uint64(in.index) >= m.countFuncs() {
			return r.errorf("function %d of %d", in.index, m.countFuncs())
		}
		if in.index >= m.importedFuncs {
			f.points = append(f.points, point{pointCall, in.start, in.end, in.index - m.importedFuncs})
		}
	case opCallIndirect:
		f.points = append(f.points, point{pointIndirect, in.start, in.end, 0})
	case opTableSet:
		m.hidden = true
	case opPrefixBulk:
		m.hidden = m.hidden || in.bulk.hidden
		if in.bulk.charged {
			f.bulk = true
			f.points = append(f.points, point{pointBulk, in.start, in.end, uint32(in.bulk.shift)})
		}
	}
	return nil
}

func (m *module) costOf(in instruction) uint64 {
	switch in.op {
	case opBlock, opLoop, opElse, opEnd:
		// These instructions are free, because the compiler generates no code for them.
		return 0
	case opCall:
		if in.index < m.importedFuncs {
			return costImported
		}
	case opMemoryGrow:
		return costGrow
	}
	return 1
}
