// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wattest

import (
	"encoding/binary"
	"slices"
)

// assembler collects the sections of a module.
type assembler struct {
	types                              []string
	typesSection, imports, functions   vector
	tablesSection, memories, globalsIn vector
	exports, elements, code, data      vector
	start                              []byte
	customs                            []byte

	funcs, globals, tables           names
	funcCount, globalCount, tabCount uint32
	signatures                       []string // key of each function's type
}

// module assembles the fields of a module. It makes two passes, because a name may be used before its declaration.
func (a *assembler) module(fields []node) {
	for _, kind := range []string{"import", "func", "global", "table"} {
		for _, f := range fields {
			if f.head() == kind {
				a.declare(kind, f)
			}
		}
	}
	for _, f := range fields {
		a.field(f)
	}
}

func (a *assembler) declare(kind string, f node) {
	name := func(args []node, to names, count *uint32) {
		if len(args) > 0 && args[0].isName() {
			to[args[0].atom] = *count
		}
		*count++
	}
	switch kind {
	case "import":
		if len(f.list) != 4 || f.list[3].head() != "func" {
			fail(f, "want (import \"module\" \"name\" (func …))")
		}
		name(f.list[3].list[1:], a.funcs, &a.funcCount)
	case "func":
		name(f.list[1:], a.funcs, &a.funcCount)
	case "global":
		name(f.list[1:], a.globals, &a.globalCount)
	case "table":
		name(f.list[1:], a.tables, &a.tabCount)
	}
}

// args contains the arguments of a field. Its methods remove arguments from the beginning.
type args []node

func (l *args) name() {
	if len(*l) > 0 && (*l)[0].isName() {
		*l = (*l)[1:]
	}
}

func (l *args) next(of node) node {
	if len(*l) == 0 {
		fail(of, "something is missing at the end of %s", of.head())
	}
	n := (*l)[0]
	*l = (*l)[1:]
	return n
}

// exportsOf removes inline exports from l, and adds them to the module.
func (a *assembler) exportsOf(l *args, kind byte, index uint32) {
	for len(*l) > 0 && (*l)[0].head() == "export" {
		a.export(l.next(node{}).list[1].str, kind, index)
	}
}

func (a *assembler) export(name []byte, kind byte, index uint32) {
	a.exports.add(binary.AppendUvarint(append(bytesOf(nil, name), kind), uint64(index)))
}

func (a *assembler) field(f node) {
	l := args(f.list[1:])
	switch f.head() {
	case "import":
		sig := a.signature(args(f.list[3].list[1:]), nil)
		item := append(bytesOf(bytesOf(nil, f.list[1].str), f.list[2].str), 0)
		a.imports.add(binary.AppendUvarint(item, uint64(a.typeIndex(sig))))
		a.signatures = append(a.signatures, sig)
	case "func":
		index := uint32(len(a.signatures))
		l.name()
		a.exportsOf(&l, 0, index)
		a.function(l)
	case "memory":
		l.name()
		a.exportsOf(&l, 2, 0)
		a.memories.add(limits(nil, l))
	case "table":
		index := uint32(a.tablesSection.count)
		l.name()
		a.exportsOf(&l, 1, index)
		last := len(l) - 1
		a.tablesSection.add(limits([]byte{valueTypes[l[last].atom]}, l[:last]))
	case "global":
		index := uint32(a.globalsIn.count)
		l.name()
		a.exportsOf(&l, 3, index)
		a.global(f, l)
	case "export":
		a.exportField(f, l)
	case "start":
		a.start = binary.AppendUvarint(nil, uint64(a.funcs.index(l.next(f))))
	case "data":
		offset := l.next(f)
		a.data.add(bytesOf(a.constant([]byte{0}, offset), concat(l)))
	case "elem":
		a.element(f, l)
	case "custom":
		name := l.next(f).str
		a.customs = bytesOf(append(a.customs, 0), append(bytesOf(nil, name), concat(l)...))
	default:
		fail(f, "unknown field %q", f.head())
	}
}

func (a *assembler) exportField(f node, l args) {
	name, what := l.next(f), l.next(f)
	switch what.head() {
	case "func":
		a.export(name.str, 0, a.funcs.index(what.list[1]))
	case "memory":
		a.export(name.str, 2, 0)
	case "global":
		a.export(name.str, 3, a.globals.index(what.list[1]))
	default:
		fail(what, "unknown export %q", what.head())
	}
}

func (a *assembler) global(f node, l args) {
	kind := l.next(f)
	item := []byte{valueTypes[kind.atom], 0}
	if kind.head() == "mut" {
		item = []byte{valueTypes[kind.list[1].atom], 1}
	}
	a.globalsIn.add(a.constant(item, l.next(f)))
}

func (a *assembler) element(f node, l args) {
	item := a.constant([]byte{0}, l.next(f))
	item = binary.AppendUvarint(item, uint64(len(l)))
	for _, n := range l {
		item = binary.AppendUvarint(item, uint64(a.funcs.index(n)))
	}
	a.elements.add(item)
}

func (a *assembler) constant(out []byte, n node) []byte {
	b := &body{a: a, locals: names{}, out: out}
	b.folded(n)
	return append(b.out, 0x0b)
}

func limits(out []byte, l args) []byte {
	out = append(out, byte(len(l)-1))
	for _, n := range l {
		out = binary.AppendUvarint(out, uint64(uint32(integer(n, 32))))
	}
	return out
}

func concat(l args) (out []byte) {
	for _, n := range l {
		out = append(out, n.str...)
	}
	return out
}

func (a *assembler) typeIndex(key string) uint32 {
	i := slices.Index(a.types, key)
	if i < 0 {
		i = len(a.types)
		a.types = append(a.types, key)
		a.typesSection.add([]byte(key))
	}
	return uint32(i)
}

func (a *assembler) encode() []byte {
	out := []byte("\x00asm\x01\x00\x00\x00")
	out = a.typesSection.section(out, 1)
	out = a.imports.section(out, 2)
	out = a.functions.section(out, 3)
	out = a.tablesSection.section(out, 4)
	out = a.memories.section(out, 5)
	out = a.globalsIn.section(out, 6)
	out = a.exports.section(out, 7)
	if a.start != nil {
		out = bytesOf(append(out, 8), a.start)
	}
	out = a.elements.section(out, 9)
	out = a.code.section(out, 10)
	out = a.data.section(out, 11)
	return append(out, a.customs...)
}
