// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

import "strings"

// readElements checks the counts in the element segments, because they determine how much memory the runtime allocates.
// It does not change the segments.
func (m *module) readElements(r *reader) error {
	n, err := r.readCount("element segments", m.limits.Segments)
	if err != nil {
		return err
	}
	return r.readEach(n, func(uint32) error { return m.readElement(r) })
}

// readElement reads one element segment. The first number of the segment is a set of bits. 1 means that the segment is
// not active. 2 means that a table index follows or, if the segment is not active, that it is declarative. 4 means that
// expressions follow instead of function indexes.
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

// readCustom removes custom sections. Of the name section, it keeps the names of functions, for readable stack traces.
// A damaged name section is not an error according to the specification.
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

// maxFunctionName is the maximum length of a function name in a stack trace, in bytes.
const maxFunctionName = 128

// functionNames encodes the names of functions again, and truncates long names, because the names appear in errors
// and Events.
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
