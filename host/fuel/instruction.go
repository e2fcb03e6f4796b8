// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

import "fmt"

// instruction is a decoded instruction, with its position in the body of the function and the immediates that this
// package needs.
type instruction struct {
	op         byte
	index      uint32 // the first immediate that is an index, or the number of labels of a br_table
	block      int64  // index of the block's function type, or a negative number if there is none
	labels     int    // size of the labels of a br_table in bytes
	start, end int
	bulk       bulk // set if op == opPrefixBulk
}

// readInstruction decodes one instruction.
func (r *reader) readInstruction(limits *Limits) (instruction, error) {
	in := instruction{start: r.pos}
	op, err := r.readByte()
	if err != nil {
		return in, err
	}
	in.op = op
	imm := immediates[op]
	switch imm {
	case immUnknown:
		r.pos--
		return in, r.unsupported(fmt.Sprintf("%s (opcode 0x%02x)", proposalOf(op), op))
	case immBulk:
		if imm, err = r.bulkOpcode(&in); err != nil {
			return in, err
		}
	case immVector:
		err = r.skipVector()
		in.end = r.pos
		return in, err
	}
	err = r.readImmediate(imm, &in, limits)
	in.end = r.pos
	return in, err
}

func (r *reader) bulkOpcode(in *instruction) (immediate, error) {
	sub, err := r.readU32()
	if err != nil {
		return immUnknown, err
	}
	if int64(sub) >= int64(len(bulks)) {
		return immUnknown, r.unsupported(fmt.Sprintf("unknown instruction (opcode 0xfc %d)", sub))
	}
	in.bulk = bulks[sub]
	return in.bulk.imm, nil
}

func (r *reader) readImmediate(imm immediate, in *instruction, limits *Limits) (err error) {
	switch imm {
	case immBlock:
		in.block, err = r.blockType()
		return err
	case immIndex:
		in.index, err = r.readU32()
	case immIndices:
		if in.index, err = r.readU32(); err == nil {
			_, err = r.readU32()
		}
	case immMemory:
		return r.memoryArgument()
	case immTable:
		in.index, in.labels, err = r.branchTable(limits)
		return err
	case immI32:
		_, err = r.readSigned(32)
	case immI64:
		_, err = r.readSigned(64)
	case immF32:
		return r.skipBytes(4)
	case immF64:
		return r.skipBytes(8)
	case immRefType:
		return r.refType()
	case immTypes:
		var n uint32
		if n, err = r.readCount("types of select", 1); err == nil {
			_, err = r.valueTypes(n)
		}
	}
	return err
}

// blockType reads a value type, the empty type, or the index of a function type.
func (r *reader) blockType() (index int64, err error) {
	start := r.pos
	v, err := r.readSigned(33)
	if err != nil || v >= 0 || r.pos != start+1 {
		return v, err
	}
	if b := r.data[start]; b != typeEmpty && !isValueType(b) {
		return v, r.unsupported(fmt.Sprintf("block type 0x%02x", b))
	}
	return v, nil
}

func (r *reader) memoryArgument() error {
	align, err := r.readU32()
	if err != nil {
		return err
	}
	if align >= 32 {
		return r.unsupported("more than one memory (or a damaged alignment)")
	}
	_, err = r.readU32()
	return err
}

func (r *reader) branchTable(limits *Limits) (labels uint32, size int, err error) {
	n, err := r.readCount("labels of a br_table", limits.BranchTable)
	if err != nil {
		return 0, 0, err
	}
	start := r.pos
	for range uint64(n) + 1 {
		if _, err := r.readU32(); err != nil {
			return 0, 0, err
		}
	}
	return n, r.pos - start, nil
}

// skipVector skips the immediates of a SIMD instruction.
func (r *reader) skipVector() error {
	sub, err := r.readU32()
	if err != nil {
		return err
	}
	switch {
	case sub <= 11, sub == 92, sub == 93: // loads and stores
		return r.memoryArgument()
	case sub == 12, sub == 13: // v128.const, i8x16.shuffle
		return r.skipBytes(16)
	case sub >= 21 && sub <= 34: // lanes
		return r.skipBytes(1)
	case sub >= 84 && sub <= 91: // load and store of a lane
		if err := r.memoryArgument(); err != nil {
			return err
		}
		return r.skipBytes(1)
	case sub >= 256:
		return r.unsupported(fmt.Sprintf("relaxed SIMD (opcode 0xfd %d)", sub))
	}
	return nil
}

// isNumber reports whether values of the type are numbers of at most 64 bits, not vectors or references.
func isNumber(b byte) bool { return b >= 0x7c && b <= 0x7f }

func isValueType(b byte) bool {
	switch b {
	case 0x7f, 0x7e, 0x7d, 0x7c, 0x7b, 0x70, 0x6f:
		return true
	}
	return false
}

// valueTypes skips n value types, and returns the number of 8-byte slots that such values need.
func (r *reader) valueTypes(n uint32) (slots uint64, err error) {
	for range n {
		b, err := r.readByte()
		if err != nil {
			return 0, err
		}
		if !isValueType(b) {
			return 0, r.unsupported(fmt.Sprintf("value type 0x%02x", b))
		}
		slots += slotsOf(b)
	}
	return slots, nil
}

// slotsOf returns the size of a value in units of 8 bytes.
func slotsOf(valueType byte) uint64 {
	if valueType == 0x7b { // v128
		return 2
	}
	return 1
}

func (r *reader) refType() error {
	b, err := r.readByte()
	if err != nil {
		return err
	}
	if b != 0x70 && b != 0x6f {
		return r.unsupported(fmt.Sprintf("reference type 0x%02x", b))
	}
	return nil
}
