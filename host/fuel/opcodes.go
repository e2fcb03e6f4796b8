// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

// Opcodes that this package reads or writes. For all other instructions, this package needs only the length and the
// cost.
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opTableSet     = 0x26
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opI32LtS       = 0x48
	opI64LtS       = 0x53
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opI64Sub       = 0x7d
	opI64ShrU      = 0x88
	opI64ExtendU   = 0xad
	opRefNull      = 0xd0
	opRefFunc      = 0xd2
	opPrefixBulk   = 0xfc
	opPrefixVector = 0xfd

	typeI32   = 0x7f
	typeI64   = 0x7e
	typeEmpty = 0x40
)

// immediate describes the immediates of an opcode.
type immediate uint8

const (
	immUnknown immediate = iota // the instruction is unknown
	immNone
	immBlock   // block type
	immIndex   // one index
	immIndices // two indices
	immMemory  // alignment and offset
	immTable   // vector of labels and the default label
	immI32
	immI64
	immF32
	immF64
	immRefType
	immTypes // vector of value types
	immBulk  // second opcode; see bulks
	immVector
)

// immediates describes the instructions of WebAssembly 2.0, by opcode.
var immediates = func() (t [256]immediate) {
	fill := func(from, to int, imm immediate) {
		for op := from; op <= to; op++ {
			t[op] = imm
		}
	}
	fill(0x00, 0x01, immNone)  // unreachable, nop
	fill(0x02, 0x04, immBlock) // block, loop, if
	t[opElse], t[opEnd] = immNone, immNone
	fill(0x0c, 0x0d, immIndex) // br, br_if
	t[0x0e] = immTable         // br_table
	t[0x0f] = immNone          // return
	t[opCall], t[opCallIndirect] = immIndex, immIndices
	fill(0x1a, 0x1b, immNone)   // drop, select
	t[0x1c] = immTypes          // select with types
	fill(0x20, 0x26, immIndex)  // local.*, global.*, table.get, table.set
	fill(0x28, 0x3e, immMemory) // loads and stores
	fill(0x3f, 0x40, immIndex)  // memory.size, memory.grow
	t[opI32Const], t[opI64Const], t[0x43], t[0x44] = immI32, immI64, immF32, immF64
	fill(0x45, 0xc4, immNone) // comparison, arithmetic, conversion, sign extension
	t[opRefNull], t[0xd1], t[opRefFunc] = immRefType, immNone, immIndex
	t[opPrefixBulk], t[opPrefixVector] = immBulk, immVector
	return t
}()

// bulk describes an instruction with the prefix 0xfc.
type bulk struct {
	imm immediate
	// charged means that the instruction processes several items. The number of items is on top of the stack, as an
	// i32. 2^shift items cost one unit of fuel.
	charged bool
	shift   byte
	// hidden means that the instruction changes tables or dropped segments, which the host can neither read nor
	// restore.
	hidden bool
}

// byteShift is the shift of memory instructions, because memory.copy copies several bytes in the time of one
// instruction.
const byteShift = 3

var bulks = [...]bulk{
	0: {imm: immNone}, 1: {imm: immNone}, 2: {imm: immNone}, 3: {imm: immNone}, // saturating truncation
	4: {imm: immNone}, 5: {imm: immNone}, 6: {imm: immNone}, 7: {imm: immNone},
	8:  {imm: immIndices, charged: true, shift: byteShift}, // memory.init
	9:  {imm: immIndex, hidden: true},                      // data.drop
	10: {imm: immIndices, charged: true, shift: byteShift}, // memory.copy
	11: {imm: immIndex, charged: true, shift: byteShift},   // memory.fill
	12: {imm: immIndices, charged: true, hidden: true},     // table.init
	13: {imm: immIndex, hidden: true},                      // elem.drop
	14: {imm: immIndices, charged: true, hidden: true},     // table.copy
	15: {imm: immIndex, charged: true, hidden: true},       // table.grow
	16: {imm: immIndex},                                    // table.size
	17: {imm: immIndex, charged: true, hidden: true},       // table.fill
}

// proposalOf returns the name of the WebAssembly feature that defines an unknown opcode, or "unknown instruction".
func proposalOf(op byte) string {
	switch {
	case op >= 0x06 && op <= 0x0a, op == 0x18, op == 0x19, op == 0x1f:
		return "exception handling"
	case op == 0x12, op == 0x13:
		return "tail calls"
	case op == 0x14, op == 0x15, op >= 0xd3 && op <= 0xd6:
		return "typed function references"
	case op == 0xfb:
		return "garbage collection"
	case op == 0xfe:
		return "threads"
	}
	return "unknown instruction"
}
