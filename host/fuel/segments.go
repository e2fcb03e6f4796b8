// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

import "strings"

// readElements only checks the segments: their content does not change, but their counts determine allocations.
func (m *module) readElements(r *reader) error {
	n, err := r.readCount("element segments", m.limits.Segments)
	if err != nil {
		return err
	}
	return r.readEach(n, func(uint32) error { return m.readElement(r) })
}

// readElement reads one segment. Its first number is a bit set: 1 not active, 2 table index (or, if not active,
// declarative), 4 expressions instead of function indices.
func (m *module) readElement(r *reader) error {
	flags, err := r.readU32()
	if err != nil {
		return err
	}
	if flags > 7 {
		return r.errorf("element segment of kind %d", flags)
	}
	active, indexed, expressions := flags&1 == 0, flags&2 != 0, flags&4 != 0
	if active {
		if indexed {
			if _, err := r.readU32(); err != nil {
				return err
			}
		}
		if err := m.skipConstant(r); err != nil {
			return err
		}
	}
	if !active || indexed {
		if err := r.elementKind(expressions); err != nil {
			return err
		}
	}
	return m.elementItems(r, expressions)
}

func (r *reader) elementKind(expressions bool) error {
	if expressions {
		return r.refType()
	}
	kind, err := r.readByte()
	if err == nil && kind != 0 {
		return r.errorf("element kind 0x%02x", kind)
	}
	return err
}

func (m *module) elementItems(r *reader, expressions bool) error {
	items, err := r.readCount("elements of a segment", m.limits.TableElements)
	if err != nil {
		return err
	}
	for range items {
		if expressions {
			err = m.skipConstant(r)
		} else {
			_, err = r.readU32()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *module) readData(r *reader) error {
	n, err := r.readCount("data segments", m.limits.Segments)
	if err != nil {
		return err
	}
	return r.readEach(n, func(uint32) error {
		flags, err := r.readU32()
		if err != nil {
			return err
		}
		if flags > 2 {
			return r.errorf("data segment of kind %d", flags)
		}
		if flags == 2 {
			if _, err := r.readU32(); err != nil {
				return err
			}
		}
		if flags != 1 {
			if err := m.skipConstant(r); err != nil {
				return err
			}
		}
		size, err := r.readU32()
		if err != nil {
			return err
		}
		return r.skipBytes(uint64(size))
	})
}

// readCustom drops custom sections. It keeps the names of the module and its functions from the name section, for
// readable stack traces of traps. According to the specification a damaged name section is no error.
func (m *module) readCustom(r *reader) error {
	name, err := r.readName()
	if err != nil || name != "name" || m.names != nil {
		return err
	}
	names := appendName(nil, "name")
	for !r.isDone() {
		id, err := r.readByte()
		if err != nil {
			return nil
		}
		size, err := r.readU32()
		if err != nil {
			return nil
		}
		sub, err := r.subReader(size, "name")
		if err != nil {
			return nil
		}
		if id != 1 {
			continue
		}
		if functions, err := sub.functionNames(m.limits.Functions); err == nil {
			m.names = appendSection(names, id, functions)
			return nil
		}
	}
	return nil
}

// maxFunctionName is the length of a name in the stack trace of a trap, in bytes.
const maxFunctionName = 128

// functionNames encodes the names again and truncates long ones, because they appear in errors and Events.
func (r *reader) functionNames(limit uint32) (out []byte, err error) {
	n, err := r.readCount("function names", limit)
	if err != nil {
		return nil, err
	}
	out = appendU32(nil, n)
	return out, r.readEach(n, func(uint32) error {
		index, err := r.readU32()
		if err != nil {
			return err
		}
		name, err := r.readName()
		if len(name) > maxFunctionName {
			name = strings.ToValidUTF8(name[:maxFunctionName], "")
		}
		out = appendName(appendU32(out, index), name)
		return err
	})
}
