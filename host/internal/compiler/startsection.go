// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package compiler

import (
	"encoding/binary"
	"slices"
)

// StartExport is the name of the export that replaces a module's start section.
const StartExport = "refract_start"

// IDs of the sections in a wasm binary that exportStart rewrites.
const (
	sectionExport = 7
	sectionStart  = 8
)

// exportStart replaces the start section of a module with an export, which the host calls right after instantiation. A
// start section would make the runtime run the start function during instantiation. If the function failed, there would
// be no instance from which the host could read the cause. A binary without a start section is returned unchanged, and
// so is a malformed binary, because the compiler reports the error.
func exportStart(wasm []byte) []byte {
	const header = 8
	if len(wasm) < header {
		return wasm
	}
	start, ok := findSection(wasm, sectionStart)
	if !ok {
		return wasm
	}
	entry := append([]byte{byte(len(StartExport))}, StartExport...)
	// Kind 0 is a function. The content of the start section is the index of the function.
	entry = append(append(entry, 0), start.contentIn(wasm)...)
	out := slices.Clone(wasm[:start.from])
	out = append(out, wasm[start.to:]...)
	exports, ok := findSection(out, sectionExport)
	if !ok {
		return insertSection(out, append([]byte{1}, entry...), start.from)
	}
	count, n := binary.Uvarint(exports.contentIn(out))
	if n <= 0 {
		return wasm
	}
	content := binary.AppendUvarint(nil, count+1)
	content = append(append(content, exports.contentIn(out)[n:]...), entry...)
	rest := slices.Clone(out[exports.to:])
	return append(appendSection(out[:exports.from:exports.from], content), rest...)
}

// section is the position of a section in a module: the section is in [from, to), and its content in [body, to).
type section struct{ from, body, to int }

func (s section) contentIn(wasm []byte) []byte { return wasm[s.body:s.to] }

func findSection(wasm []byte, id byte) (section, bool) {
	for at := 8; at < len(wasm); {
		size, n := binary.Uvarint(wasm[at+1:])
		if n <= 0 || size > uint64(len(wasm)-at-1-n) {
			return section{}, false
		}
		s := section{from: at, body: at + 1 + n, to: at + 1 + n + int(size)}
		if wasm[at] == id {
			return s, true
		}
		at = s.to
	}
	return section{}, false
}

func appendSection(wasm, content []byte) []byte {
	wasm = append(wasm, sectionExport)
	wasm = binary.AppendUvarint(wasm, uint64(len(content)))
	return append(wasm, content...)
}

// insertSection inserts an export section at the position of the start section, which comes right after it in the
// order of sections.
func insertSection(wasm, content []byte, at int) []byte {
	rest := slices.Clone(wasm[at:])
	return append(appendSection(wasm[:at:at], content), rest...)
}
