// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wattest

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/refract-project/refract/internal/leb128"
)

// signature encodes the parameters and results at the beginning of l, and adds the names of the parameters to locals.
func (a *assembler) signature(l args, locals names) string {
	params, results := []byte{}, []byte{}
	l.name()
	for _, n := range l {
		switch n.head() {
		case "param":
			params = append(params, declared(n, locals, len(params))...)
		case "result":
			results = append(results, declared(n, nil, 0)...)
		default:
			return string(bytesOf(bytesOf([]byte{0x60}, params), results))
		}
	}
	return string(bytesOf(bytesOf([]byte{0x60}, params), results))
}

// declared returns the types in a (param …), (result …) or (local …). A name before the type is added to locals.
func declared(n node, locals names, count int) (types []byte) {
	l := args(n.list[1:])
	if len(l) > 0 && l[0].isName() {
		locals[l[0].atom] = uint32(count)
		l.name()
	}
	for _, t := range l {
		code, ok := valueTypes[t.atom]
		if !ok {
			fail(t, "unknown type %q", t.atom)
		}
		types = append(types, code)
	}
	return types
}

// function assembles one function, after its name and exports were removed from l.
func (a *assembler) function(l args) {
	b := &body{a: a, locals: names{}}
	sig := a.signature(l, b.locals)
	a.functions.add(binary.AppendUvarint(nil, uint64(a.typeIndex(sig))))
	a.signatures = append(a.signatures, sig)
	count := int(sig[1])
	var groups vector
	for len(l) > 0 && slices.Contains([]string{"param", "result", "local"}, l[0].head()) {
		if n := l.next(node{}); n.head() == "local" {
			for _, t := range declared(n, b.locals, count) {
				groups.add([]byte{1, t})
				count++
			}
		}
	}
	b.out = append(binary.AppendUvarint(nil, uint64(groups.count)), groups.items...)
	b.sequence(l)
	a.code.add(bytesOf(nil, append(b.out, 0x0b)))
}

// body assembles the instructions of a function.
type body struct {
	a      *assembler
	locals names
	labels []string
	out    []byte
}

func (b *body) sequence(l args) {
	for len(l) > 0 {
		n := l.next(node{})
		if n.isList {
			b.folded(n)
			continue
		}
		b.plain(n, &l)
	}
}

// folded assembles a folded instruction, (op immediates operands…). The binary format has the operands before the
// instruction.
func (b *body) folded(n node) {
	if len(n.list) == 0 {
		fail(n, "empty instruction")
	}
	l := args(n.list[1:])
	switch n.head() {
	case "block", "loop":
		b.open(n.list[0], &l)
		b.sequence(l)
		b.close()
	case "if":
		b.foldedIf(n, l)
	default:
		keep := b.out
		b.out = nil
		b.plain(n.list[0], &l)
		op := b.out
		b.out = keep
		for _, operand := range l {
			b.folded(operand)
		}
		b.out = append(b.out, op...)
	}
}

func (b *body) foldedIf(n node, l args) {
	var header args
	for len(l) > 0 && (l[0].isName() || l[0].head() == "result") {
		header = append(header, l.next(n))
	}
	for len(l) > 0 && l[0].head() != "then" {
		b.folded(l.next(n))
	}
	b.open(n.list[0], &header)
	b.sequence(l.next(n).list[1:])
	if len(l) > 0 {
		b.out = append(b.out, 0x05)
		b.sequence(l.next(n).list[1:])
	}
	b.close()
}

// open writes the beginning of a block, loop or if. It removes the label and the result type from l.
func (b *body) open(op node, l *args) {
	label := ""
	if len(*l) > 0 && (*l)[0].isName() {
		label = l.next(op).atom
	}
	b.labels = append(b.labels, label)
	b.out = append(b.out, opcodes[op.atom].code...)
	if len(*l) > 0 && (*l)[0].head() == "result" {
		b.out = append(b.out, declared(l.next(op), nil, 0)...)
		return
	}
	b.out = append(b.out, 0x40)
}

func (b *body) close() {
	b.labels = b.labels[:len(b.labels)-1]
	b.out = append(b.out, 0x0b)
}

func (b *body) label(n node) uint64 {
	if !n.isName() {
		return uint64(integer(n, 32))
	}
	for i := range b.labels {
		if b.labels[len(b.labels)-1-i] == n.atom {
			return uint64(i)
		}
	}
	fail(n, "unknown label %s", n.atom)
	return 0
}

// plain writes one instruction. It removes the instruction's immediates from l.
func (b *body) plain(n node, l *args) {
	op, ok := opcodes[n.atom]
	if !ok {
		fail(n, "unknown instruction %q", n.atom)
	}
	switch op.imm {
	case 'o':
		b.open(n, l)
		return
	case 'e':
		b.close()
		return
	}
	b.out = append(b.out, op.code...)
	switch op.imm {
	case 'l':
		b.out = binary.AppendUvarint(b.out, uint64(b.locals.index(l.next(n))))
	case 'g':
		b.out = binary.AppendUvarint(b.out, uint64(b.a.globals.index(l.next(n))))
	case 'f':
		b.out = binary.AppendUvarint(b.out, uint64(b.a.funcs.index(l.next(n))))
	case 'b':
		b.out = binary.AppendUvarint(b.out, b.label(l.next(n)))
	case 'i':
		b.out = leb128.AppendSigned(b.out, integer(l.next(n), 32))
	case 'I':
		b.out = leb128.AppendSigned(b.out, integer(l.next(n), 64))
	case 'd':
		b.out = float(b.out, l.next(n), 32)
	case 'D':
		b.out = float(b.out, l.next(n), 64)
	case 'm':
		b.memory(op.align, l)
	case 't':
		b.branches(l)
	case 'c':
		b.out = binary.AppendUvarint(b.out, uint64(b.a.typeIndex(b.a.signature(b.types(l), nil))))
		b.out = append(b.out, 0)
	case '0':
		b.out = append(b.out, 0)
	case '2':
		b.out = append(b.out, 0, 0)
	case 'r':
		b.out = append(b.out, map[string]byte{"func": 0x70, "extern": 0x6f}[l.next(n).atom])
	}
}

// types removes each (param …) and (result …) from the beginning of l, and returns them.
func (b *body) types(l *args) (types args) {
	for len(*l) > 0 && ((*l)[0].head() == "param" || (*l)[0].head() == "result") {
		types = append(types, l.next(node{}))
	}
	return types
}

func (b *body) memory(align byte, l *args) {
	offset := int64(0)
	if len(*l) > 0 && strings.HasPrefix((*l)[0].atom, "offset=") {
		n := l.next(node{})
		n.atom = strings.TrimPrefix(n.atom, "offset=")
		offset = integer(n, 32)
	}
	b.out = binary.AppendUvarint(append(b.out, align), uint64(uint32(offset)))
}

func (b *body) branches(l *args) {
	var labels vector
	for len(*l) > 0 && !(*l)[0].isList && ((*l)[0].isName() || strings.Trim((*l)[0].atom, "0123456789") == "") {
		labels.add(binary.AppendUvarint(nil, b.label(l.next(node{}))))
	}
	b.out = append(binary.AppendUvarint(b.out, uint64(labels.count-1)), labels.items...)
}
