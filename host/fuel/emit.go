// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

import "github.com/refract-project/refract/internal/leb128"

// counters contains the indexes of the two globals that this package adds.
type counters struct{ fuel, depth uint32 }

// appendBody appends the body of the function, with its charges, to out.
func (f *function) appendBody(out []byte, c counters) []byte {
	out = f.declareLocals(out)
	out = c.appendCharge(out, f.entry)
	pos := f.code
	for _, p := range f.points {
		switch p.kind {
		case pointCharge:
			out = append(out, f.body[pos:p.end]...)
			if p.arg > 0 {
				out = c.appendCharge(out, f.charges[p.arg-1])
			}
		case pointBulk:
			out = append(out, f.body[pos:p.start]...)
			out = c.chargeLength(out, uint32(f.locals), p.arg)
			out = append(out, f.body[p.start:p.end]...)
		case pointCall, pointIndirect:
			out = append(out, f.body[pos:p.start]...)
			out = c.appendDescend(out, p.arg)
			out = append(out, f.body[p.start:p.end]...)
			out = c.appendAscend(out, p.arg)
		}
		pos = p.end
	}
	return append(out, f.body[pos:]...)
}

// declareLocals copies the declarations of locals. It adds an i32 if the function charges for lengths.
func (f *function) declareLocals(out []byte) []byte {
	if !f.bulk {
		return append(out, f.body[:f.code]...)
	}
	declared := (&reader{data: f.body}).skipNumber()
	out = appendU32(out, f.groups+1)
	out = append(out, f.body[declared:f.code]...)
	return append(out, 1, typeI32)
}

// skipNumber returns the position after a number that was already read without an error.
func (r *reader) skipNumber() int {
	for r.data[r.pos] >= 0x80 {
		r.pos++
	}
	return r.pos + 1
}

// appendCharge appends code that takes cost units of fuel, and traps if less fuel is left.
func (c counters) appendCharge(out []byte, cost uint64) []byte {
	out = appendU32(append(out, opGlobalGet), c.fuel)
	out = leb128.AppendSigned(append(out, opI64Const), int64(cost))
	return c.appendSettle(append(out, opI64Sub))
}

// chargeLength appends code that takes one unit of fuel for each 2^shift items. The number of items is on top of the
// stack and stays there.
func (c counters) chargeLength(out []byte, local, shift uint32) []byte {
	out = appendU32(append(out, opLocalTee), local)
	out = appendU32(append(out, opGlobalGet), c.fuel)
	out = appendU32(append(out, opLocalGet), local)
	out = append(out, opI64ExtendU)
	if shift > 0 {
		out = append(out, opI64Const, byte(shift), opI64ShrU)
	}
	return c.appendSettle(append(out, opI64Sub))
}

// appendSettle appends code that stores the value on top of the stack as the new fuel, and traps if it is negative. The
// engine keeps the value in a register between global.set and global.get: see the package documentation.
func (c counters) appendSettle(out []byte) []byte {
	out = appendU32(append(out, opGlobalSet), c.fuel)
	out = appendU32(append(out, opGlobalGet), c.fuel)
	return append(out, opI64Const, 0, opI64LtS, opIf, typeEmpty, opUnreachable, opEnd)
}

// appendDescend appends code that takes stack units before a call that may recurse. appendAscend appends code that
// returns them after the call.
func (c counters) appendDescend(out []byte, units uint32) []byte {
	out = appendU32(append(out, opGlobalGet), c.depth)
	out = leb128.AppendSigned(append(out, opI32Const), int64(units))
	out = appendU32(append(out, opI32Sub, opGlobalSet), c.depth)
	out = appendU32(append(out, opGlobalGet), c.depth)
	return append(out, opI32Const, 0, opI32LtS, opIf, typeEmpty, opUnreachable, opEnd)
}

func (c counters) appendAscend(out []byte, units uint32) []byte {
	out = appendU32(append(out, opGlobalGet), c.depth)
	out = leb128.AppendSigned(append(out, opI32Const), int64(units))
	return appendU32(append(out, opI32Add, opGlobalSet), c.depth)
}
