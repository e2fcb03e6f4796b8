// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

import (
	"bytes"
	"encoding/binary"
)

// Numbers of the sections in the binary format.
const (
	sectionCustom = iota
	sectionType
	sectionImport
	sectionFunction
	sectionTable
	sectionMemory
	sectionGlobal
	sectionExport
	sectionStart
	sectionElement
	sectionCode
	sectionData
	sectionDataCount
	sectionTag
)

var sectionNames = [...]string{
	"custom", "type", "import", "function", "table", "memory", "global", "export", "start", "element", "code",
	"data", "data count", "tag",
}

// sectionOrder is the order of the sections in a binary. The section with the data count comes before the code.
var sectionOrder = [...]byte{
	sectionType, sectionImport, sectionFunction, sectionTable, sectionMemory, sectionGlobal, sectionExport,
	sectionStart, sectionElement, sectionDataCount, sectionCode, sectionData,
}

var header = []byte{0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00}

// section is the content of a section. The content may have been rewritten.
type section struct {
	present bool
	content []byte
	base    int
}

// signature contains the properties of a function type that this package needs.
type signature struct {
	params uint32
	slots  uint64
}

// module is a parsed binary, with its original sections and the information that is needed to instrument it.
type module struct {
	limits   Limits
	pages    uint32
	sections [len(sectionNames)]section
	names    []byte // name section with the names of functions only; nil if there are none

	types           []signature
	importedFuncs   uint32
	importedGlobals uint32
	globals         uint32 // number of imported and defined globals
	exports         uint32
	functionTypes   []uint32 // types of the defined functions
	functions       []function
	work            uint64  // estimated work of the compiler; see compilerWork
	events          []event // control events of the function that is being read
	points          []point // reused memory for the points of the function that is being read
	paths           paths
	chunk           int64 // see maxChunk
	rest            uint64
	mutable         []uint32 // indices of the module's own mutable globals
	hidden          bool     // the module has state that the host cannot restore
}

func (m *module) countFuncs() uint64 { return uint64(m.importedFuncs) + uint64(len(m.functionTypes)) }

func (m *module) sectionReader(id byte) *reader {
	s := m.sections[id]
	return &reader{data: s.content, base: s.base, section: sectionNames[id]}
}

// parseModule splits the binary into sections and reads them in their order, so that every section can check references
// to earlier ones.
func (m *module) parseModule(wasm []byte) error {
	if !bytes.HasPrefix(wasm, header) {
		return &FormatError{Section: "header", Reason: `not a WebAssembly module of version 1 (it starts with "\0asm" 1 0 0 0)`}
	}
	if err := m.splitSections(&reader{data: wasm, pos: len(header), section: "header"}); err != nil {
		return err
	}
	steps := []struct {
		id   byte
		read func(*reader) error
	}{
		{sectionType, m.readTypes},
		{sectionImport, m.readImports},
		{sectionFunction, m.readFunctions},
		{sectionTable, m.readTables},
		{sectionMemory, m.readMemories},
		{sectionGlobal, m.readGlobals},
		{sectionExport, m.readExports},
		{sectionElement, m.readElements},
		{sectionCode, m.readCode},
		{sectionData, m.readData},
	}
	for _, step := range steps {
		if !m.sections[step.id].present {
			continue
		}
		if err := step.read(m.sectionReader(step.id)); err != nil {
			return err
		}
	}
	if len(m.functions) != len(m.functionTypes) {
		return &FormatError{Offset: len(wasm), Section: "code", Reason: "functions are declared but have no code"}
	}
	return nil
}

func (m *module) splitSections(r *reader) error {
	last := -1
	for !r.isDone() {
		start := r.offset()
		id, err := r.readByte()
		if err != nil {
			return err
		}
		size, err := r.readU32()
		if err != nil {
			return err
		}
		if id == sectionTag {
			return &UnsupportedError{Offset: start, Feature: "exception handling"}
		}
		if int(id) >= len(sectionNames) {
			return &FormatError{Offset: start, Section: "header", Reason: "unknown section"}
		}
		body, err := r.subReader(size, sectionNames[id])
		if err != nil {
			return err
		}
		if id == sectionCustom {
			if err := m.readCustom(body); err != nil {
				return err
			}
			continue
		}
		place := bytes.IndexByte(sectionOrder[:], id)
		if place <= last {
			return &FormatError{Offset: start, Section: sectionNames[id], Reason: "section is repeated or out of order"}
		}
		last = place
		m.sections[id] = section{present: true, content: body.data, base: body.base}
	}
	return nil
}

// encodeModule encodes the rewritten module.
func (m *module) encodeModule() []byte {
	out := bytes.Clone(header)
	for _, id := range sectionOrder {
		if s := m.sections[id]; s.present {
			out = appendSection(out, id, s.content)
		}
	}
	if m.names != nil {
		out = appendSection(out, sectionCustom, m.names)
	}
	return out
}

func appendSection(out []byte, id byte, content []byte) []byte {
	out = append(out, id)
	out = appendU32(out, uint32(len(content)))
	return append(out, content...)
}

func appendU32(out []byte, v uint32) []byte { return binary.AppendUvarint(out, uint64(v)) }

func appendName(out []byte, name string) []byte {
	return append(appendU32(out, uint32(len(name))), name...)
}
