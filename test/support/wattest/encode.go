// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wattest

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

var valueTypes = map[string]byte{
	"i32": 0x7f, "i64": 0x7e, "f32": 0x7d, "f64": 0x7c, "v128": 0x7b, "funcref": 0x70, "externref": 0x6f,
}

// names maps names, such as $x, to indices.
type names map[string]uint32

func (n names) index(of node) uint32 {
	if of.isName() {
		i, ok := n[of.atom]
		if !ok {
			fail(of, "unknown name %s", of.atom)
		}
		return i
	}
	return uint32(integer(of, 32))
}

func integer(n node, bits int) int64 {
	text := strings.ReplaceAll(n.atom, "_", "")
	if v, err := strconv.ParseInt(text, 0, bits); err == nil {
		return v
	}
	v, err := strconv.ParseUint(text, 0, bits)
	if err != nil {
		fail(n, "%q is no %d-bit number", n.atom, bits)
	}
	if bits == 32 {
		return int64(int32(uint32(v)))
	}
	return int64(v)
}

func bytesOf(out, b []byte) []byte { return append(binary.AppendUvarint(out, uint64(len(b))), b...) }

func float(out []byte, n node, bits int) []byte {
	v, err := strconv.ParseFloat(n.atom, bits)
	if err != nil {
		fail(n, "%q is no number", n.atom)
	}
	var u uint64
	if bits == 32 {
		u = uint64(math.Float32bits(float32(v)))
	} else {
		u = math.Float64bits(v)
	}
	for i := range bits / 8 {
		out = append(out, byte(u>>(8*i)))
	}
	return out
}

// vector collects the encoded items of a section.
type vector struct {
	count int
	items []byte
}

func (v *vector) add(item []byte) {
	v.count++
	v.items = append(v.items, item...)
}

func (v *vector) section(out []byte, id byte) []byte {
	if v.count == 0 {
		return out
	}
	return bytesOf(append(out, id), append(binary.AppendUvarint(nil, uint64(v.count)), v.items...))
}
