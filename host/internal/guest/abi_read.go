// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/binary"
	"math"

	"github.com/refract-project/refract/host/document"
)

func abiKind(i *Instance, stack []uint64) { stack[0] = uint64(i.valueAt("kind", stack).Kind()) }

func abiLen(i *Instance, stack []uint64) { stack[0] = uint64(i.valueAt("len", stack).Len()) }

func abiGet(i *Instance, stack []uint64) {
	n, path := i.nodeAndPath("get", stack)
	got, err := n.Get(path)
	i.finishOperation("get", err)
	stack[0] = i.handleOf(got)
}

func abiField(i *Instance, stack []uint64) {
	n, key := i.nodeAndPath("field", stack)
	// Fuel is charged for the length of the key, because the key is hashed and compared with the keys of visited
	// nodes.
	i.chargeFuel(int64(len(key)))
	got, err := n.Field(key)
	i.finishOperation("field", err)
	stack[0] = i.handleOf(got)
}

func abiElem(i *Instance, stack []uint64) {
	got, err := i.nodeOf("elem", stack[0]).Index(int(uint32(stack[1])))
	i.finishOperation("elem", err)
	stack[0] = i.handleOf(got)
}

func abiString(i *Instance, stack []uint64) {
	v := i.valueAt("string", stack)
	if !v.Exists() {
		stack[0] = absent
		return
	}
	s, ok := v.Text()
	if !ok {
		i.abortWrongKind("string", stack, v.Kind(), "string")
	}
	i.giveString("string", s, stack[3], stack[4])
	stack[0] = uint64(len(s))
}

// giveString copies s to the guest's buffer, truncated to the capacity of the buffer.
func (i *Instance) giveString(function, s string, buffer, capacity uint64) {
	n := min(len(s), int(uint32(capacity)))
	if n == 0 {
		return
	}
	copy(i.guestBytes(function, buffer, uint64(n)), s)
	if n >= 256 {
		i.chargeFuel(int64(n) / 16)
	}
}

func abiStringEq(i *Instance, stack []uint64) {
	s, ok := i.valueAt("string_eq", stack).Text()
	other := i.guestString("string_eq", stack[3], stack[4])
	i.chargeFuel(int64(min(len(s), len(other))) / 8)
	stack[0] = boolFlag(ok && s == other)
}

func abiInt(i *Instance, stack []uint64) {
	v := i.valueAt("int", stack)
	if !v.Exists() {
		stack[0] = stack[3]
		return
	}
	n, ok := v.Int()
	if !ok {
		i.abortWrongKind("int", stack, v.Kind(), "int")
	}
	stack[0] = uint64(n)
}

func abiFloat(i *Instance, stack []uint64) {
	v := i.valueAt("float", stack)
	if !v.Exists() {
		stack[0] = stack[3]
		return
	}
	f, ok := v.Float()
	if !ok {
		i.abortWrongKind("float", stack, v.Kind(), "a number")
	}
	stack[0] = math.Float64bits(f)
}

func abiBool(i *Instance, stack []uint64) {
	v := i.valueAt("bool", stack)
	if !v.Exists() {
		stack[0] = boolFlag(uint32(stack[3]) != 0)
		return
	}
	b, ok := v.Bool()
	if !ok {
		i.abortWrongKind("bool", stack, v.Kind(), "bool")
	}
	stack[0] = boolFlag(b)
}

// abiKeys encodes all keys even if the buffer is too small, because the guest needs the size for a second call.
func abiKeys(i *Instance, stack []uint64) {
	v := i.valueAt("keys", stack)
	switch v.Kind() {
	case document.Map:
	case document.Absent, document.Null:
		stack[0] = 0
		return
	default:
		i.abortWrongKind("keys", stack, v.Kind(), "map")
	}
	i.encoded, i.encodedFor = i.encoded[:0], document.View{}
	i.keyScratch = v.Keys(i.keyScratch[:0])
	for _, k := range i.keyScratch {
		i.encoded = binary.LittleEndian.AppendUint32(i.encoded, uint32(len(k)))
		i.encoded = append(i.encoded, k...)
	}
	i.chargeFuel(i.doc.TakeWork() + document.SortWork(len(i.keyScratch), len(i.encoded)) + int64(len(i.encoded))/8)
	i.deliverEncoded("keys", stack)
}

// abiJSON caches the encoding, so that a second call with a sufficiently large buffer only copies it.
func abiJSON(i *Instance, stack []uint64) {
	v := i.valueAt("json", stack)
	if v.Kind() == document.Absent {
		stack[0] = 0
		return
	}
	if !i.encodedSame(v) {
		var work int64
		i.encoded, work = v.Encode(i.encoded[:0])
		i.encodedFor, i.encodedAt = v, i.doc.Version()
		i.chargeFuel(i.doc.TakeWork() + work)
	}
	i.deliverEncoded("json", stack)
}

// encodedSame reports whether the cached encoding belongs to this value and the document was not written since the
// value was encoded.
func (i *Instance) encodedSame(v document.View) bool {
	return i.encodedFor.Exists() && i.encodedAt == i.doc.Version() && v.Is(i.encodedFor)
}

// deliverEncoded copies the encoding to the guest's buffer if all of it fits, and returns its size.
func (i *Instance) deliverEncoded(function string, stack []uint64) {
	if size := len(i.encoded); size > 0 && size <= int(uint32(stack[4])) {
		copy(i.guestBytes(function, stack[3], uint64(size)), i.encoded)
		i.chargeFuel(int64(size) / 16)
	}
	stack[0] = uint64(len(i.encoded))
}
