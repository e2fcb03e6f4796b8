// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

import (
	"fmt"
	"strings"
)

func (m *module) readTypes(r *reader) error {
	n, err := r.readCount("function types", m.limits.Types)
	if err != nil {
		return err
	}
	return r.readEach(n, func(uint32) error {
		form, err := r.readByte()
		if err != nil {
			return err
		}
		if form != 0x60 {
			return r.unsupported(fmt.Sprintf("type of form 0x%02x", form))
		}
		params, err := r.readCount("parameters of a function", m.limits.Parameters)
		if err != nil {
			return err
		}
		slots, err := r.valueTypes(params)
		if err != nil {
			return err
		}
		results, err := r.readCount("results of a function", m.limits.Parameters)
		if err != nil {
			return err
		}
		more, err := r.valueTypes(results)
		m.types = append(m.types, signature{params: params, slots: slots + more})
		return err
	})
}

func (m *module) readImports(r *reader) error {
	n, err := r.readCount("imports", m.limits.Functions)
	if err != nil {
		return err
	}
	return r.readEach(n, func(uint32) error {
		// Only the lengths of the import's module name and of its own name are checked here. The host checks whether
		// there is an import with this name.
		for range 2 {
			if err := r.shortName("bytes of the name of an import"); err != nil {
				return err
			}
		}
		kind, err := r.readByte()
		if err != nil {
			return err
		}
		switch kind {
		case 0:
			m.importedFuncs++
			return m.typeIndex(r)
		case 3:
			m.importedGlobals++
			m.globals++
			_, _, err := r.globalType()
			return err
		}
		// Imports of memories and tables are rejected, because their limits could not be enforced.
		return r.unsupported(fmt.Sprintf("import of kind %d: only functions and globals can be imported", kind))
	})
}

// maxName is the maximum length of names that appear in errors. All known toolchains generate shorter names.
const maxName = 1024

func (r *reader) shortName(what string) error {
	name, err := r.readName()
	if err != nil {
		return err
	}
	return r.checkLimit(what, uint64(len(name)), maxName)
}

func (m *module) typeIndex(r *reader) error {
	t, err := r.readU32()
	if err != nil {
		return err
	}
	if uint64(t) >= uint64(len(m.types)) {
		return r.errorf("type %d of %d", t, len(m.types))
	}
	return nil
}

func (r *reader) globalType() (valueType byte, mutable bool, err error) {
	if _, err := r.valueTypes(1); err != nil {
		return 0, false, err
	}
	valueType = r.data[r.pos-1]
	b, err := r.readByte()
	if err == nil && b > 1 {
		err = r.errorf("mutability 0x%02x", b)
	}
	return valueType, b == 1, err
}

func (m *module) readFunctions(r *reader) error {
	n, err := r.readCount("functions", m.limits.Functions)
	if err != nil {
		return err
	}
	m.functionTypes = make([]uint32, n)
	return r.readEach(n, func(i uint32) error {
		t, err := r.readU32()
		if err != nil {
			return err
		}
		if uint64(t) >= uint64(len(m.types)) {
			return r.errorf("type %d of %d", t, len(m.types))
		}
		m.functionTypes[i] = t
		return nil
	})
}

// readTables limits the maximum size of every table, because an element takes 8 bytes of the host's memory.
func (m *module) readTables(r *reader) error {
	n, err := r.readCount("tables", m.limits.Tables)
	if err != nil {
		return err
	}
	out := appendU32(nil, n)
	err = r.readEach(n, func(uint32) error {
		start := r.pos
		if err := r.refType(); err != nil {
			return err
		}
		out = append(out, r.data[start])
		out, err = r.readBound(out, "initial table elements", m.limits.TableElements)
		return err
	})
	m.sections[sectionTable].content = out
	return err
}

// readMemories limits the maximum size of the memory. Modules with different limits can share a runtime, because the
// limit is part of the module.
func (m *module) readMemories(r *reader) error {
	n, err := r.readCount("memories", 1)
	if err != nil {
		return err
	}
	out := appendU32(nil, n)
	err = r.readEach(n, func(uint32) error {
		out, err = r.readBound(out, "initial memory pages (64 KiB each)", m.pages)
		return err
	})
	m.sections[sectionMemory].content = out
	return err
}

// readBound reads the limits of a memory or table and appends them to out. The appended maximum is at most the argument
// most.
func (r *reader) readBound(out []byte, what string, most uint32) ([]byte, error) {
	flags, err := r.readByte()
	if err != nil {
		return nil, err
	}
	if flags > 1 {
		return nil, r.unsupported(fmt.Sprintf("shared or 64-bit memory or table (limits flag 0x%02x)", flags))
	}
	low, err := r.readU32()
	if err != nil {
		return nil, err
	}
	if err := r.checkLimit(what, uint64(low), uint64(most)); err != nil {
		return nil, err
	}
	high := most
	if flags == 1 {
		own, err := r.readU32()
		if err != nil {
			return nil, err
		}
		if own < low {
			return nil, r.errorf("maximum %d below the minimum %d", own, low)
		}
		high = min(own, most)
	}
	return appendU32(appendU32(append(out, 1), low), high), nil
}

func (m *module) readGlobals(r *reader) error {
	n, err := r.readCount("globals", m.limits.Globals)
	if err != nil {
		return err
	}
	err = r.readEach(n, func(i uint32) error {
		valueType, mutable, err := r.globalType()
		if err != nil {
			return err
		}
		if mutable {
			m.mutable = append(m.mutable, m.importedGlobals+i)
			m.hidden = m.hidden || !isNumber(valueType)
		}
		return m.skipConstant(r)
	})
	m.globals += n
	return err
}

// globalIndex returns an error if a module uses a global that it does not have. The counters come after the module's
// own globals, and a module that could write them could set its own limits.
func (m *module) globalIndex(r *reader, index uint32) error {
	if index >= m.globals {
		return r.errorf("global %d of %d", index, m.globals)
	}
	return nil
}

func (m *module) readExports(r *reader) error {
	n, err := r.readCount("exports", m.limits.Functions)
	if err != nil {
		return err
	}
	m.exports = n
	return r.readEach(n, func(uint32) error {
		name, err := r.readName()
		if err != nil {
			return err
		}
		if name == GlobalName || name == DepthName || strings.HasPrefix(name, StatePrefix) {
			return &CollisionError{Export: name}
		}
		if err := r.checkLimit("bytes of the name of an export", uint64(len(name)), maxName); err != nil {
			return err
		}
		kind, err := r.readByte()
		if err != nil {
			return err
		}
		index, err := r.readU32()
		if err == nil && kind == 3 {
			return m.globalIndex(r, index)
		}
		return err
	})
}

// skipConstant skips the expression of an initializer.
func (m *module) skipConstant(r *reader) error {
	for {
		in, err := r.readInstruction(&m.limits)
		if err != nil {
			return err
		}
		switch in.op {
		case opEnd:
			return nil
		case opGlobalGet:
			if err := m.globalIndex(r, in.index); err != nil {
				return err
			}
		case opI32Const, opI64Const, 0x43, 0x44, opRefNull, opRefFunc, opPrefixVector:
		default:
			return r.errorf("instruction 0x%02x in a constant", in.op)
		}
	}
}
