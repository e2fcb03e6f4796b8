// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"sync"
)

// Strings packs the content of objects. A packed pod takes some hundred bytes without pointers that the garbage
// collector must follow. When it is unpacked, its maps take ten kilobytes or more. The objects of a kind have the same
// keys and mostly the same strings, so Strings stores each string only once. A nil Strings does not pack objects.
// Strings is safe for concurrent use.
type Strings struct {
	mu      sync.Mutex
	current *table
	met     map[string]struct{} // strings that have occurred once; they are stored when they occur again
}

const (
	// tableMost is the maximum number of strings in a table. When a table is full, a new one is started. A full table
	// is freed together with the objects that use it.
	tableMost = 1 << 14
	// metMost is the maximum number of strings in met. When it is reached, all of them are dropped.
	metMost = 1 << 13
	// textMost is the maximum length of a stored string in bytes.
	textMost = 64
)

// NewStrings returns empty Strings.
func NewStrings() *Strings {
	return &Strings{current: newTable(), met: map[string]struct{}{}}
}

// table assigns numbers to strings. The number of a string never changes.
type table struct {
	mu      sync.RWMutex // protects strings; numbers is used only while an object is being packed
	strings []any        // the type is any, so that using a string as a value needs no allocation
	numbers map[string]uint64
}

func newTable() *table { return &table{numbers: map[string]uint64{}} }

func (t *table) allStrings() []any {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.strings
}

func (t *table) addString(text string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	text, number := strings.Clone(text), uint64(len(t.strings))
	t.strings = append(t.strings, text)
	t.numbers[text] = number
	return number
}

// packed is the packed content of one object.
type packed struct {
	text  string
	table *table
}

// Tags of packed values. The tag of a string is followed by its number in the table, or by its length and bytes. The
// tag of a list or a map is followed by the number of elements. The tag of a json.Number, which a Trim may produce, is
// followed by its text.
const (
	tagNull = iota
	tagFalse
	tagTrue
	tagInt
	tagFloat
	tagNumber
	tagText
	tagKept
	tagList
	tagMap
)

// packContent packs the content of an object. It returns nil if the content contains a value of an unknown type. The
// strings of a private object are not stored in the table.
func (s *Strings) packContent(object map[string]any, private bool) *packed {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.current.strings) >= tableMost {
		s.current = newTable()
	}
	p := packing{of: s, private: private}
	if !p.writeValue(object) {
		return nil
	}
	return &packed{text: string(p.out), table: s.current}
}

type packing struct {
	of      *Strings
	private bool
	out     []byte
}

func (p *packing) writeValue(value any) bool {
	switch v := value.(type) {
	case nil:
		p.out = append(p.out, tagNull)
	case bool:
		tag := byte(tagFalse)
		if v {
			tag = tagTrue
		}
		p.out = append(p.out, tag)
	case int64:
		p.out = binary.AppendVarint(append(p.out, tagInt), v)
	case float64:
		p.out = binary.BigEndian.AppendUint64(append(p.out, tagFloat), math.Float64bits(v))
	case json.Number:
		p.writeLiteral(tagNumber, string(v))
	case string:
		p.writeString(v)
	case []any:
		p.out = binary.AppendUvarint(append(p.out, tagList), uint64(len(v)))
		for _, element := range v {
			if !p.writeValue(element) {
				return false
			}
		}
	case map[string]any:
		p.out = binary.AppendUvarint(append(p.out, tagMap), uint64(len(v)))
		for key, element := range v {
			p.writeString(key)
			if !p.writeValue(element) {
				return false
			}
		}
	default:
		return false
	}
	return true
}

func (p *packing) writeString(text string) {
	number, kept := p.of.current.numbers[text]
	if !kept && len(text) <= textMost && !p.private && p.of.wasMet(text) {
		number, kept = p.of.current.addString(text), true
	}
	if kept {
		p.out = binary.AppendUvarint(append(p.out, tagKept), number)
		return
	}
	p.writeLiteral(tagText, text)
}

func (p *packing) writeLiteral(tag byte, text string) {
	p.out = append(binary.AppendUvarint(append(p.out, tag), uint64(len(text))), text...)
}

// wasMet reports whether a string has occurred before.
func (s *Strings) wasMet(text string) bool {
	if _, met := s.met[text]; met {
		delete(s.met, text)
		return true
	}
	if len(s.met) >= metMost {
		clear(s.met)
	}
	s.met[strings.Clone(text)] = struct{}{}
	return false
}

// unpackContent returns the unpacked content. Its strings share memory with the packed data.
func (p *packed) unpackContent() map[string]any {
	u := unpacking{rest: p.text, strings: p.table.allStrings()}
	object, _ := u.readValue().(map[string]any)
	return object
}

type unpacking struct {
	rest    string
	strings []any
}

func (u *unpacking) readValue() any {
	switch u.readByte() {
	case tagFalse:
		return false
	case tagTrue:
		return true
	case tagInt:
		n := u.readUvarint()
		return int64(n>>1) ^ -int64(n&1)
	case tagFloat:
		bits := uint64(0)
		for range 8 {
			bits = bits<<8 | uint64(u.readByte())
		}
		return math.Float64frombits(bits)
	case tagNumber:
		return json.Number(u.readLiteral())
	case tagText:
		return u.readLiteral()
	case tagKept:
		return u.strings[u.readUvarint()]
	case tagList:
		list := make([]any, u.readUvarint())
		for n := range list {
			list[n] = u.readValue()
		}
		return list
	case tagMap:
		length := int(u.readUvarint())
		object := make(map[string]any, length)
		for range length {
			key, _ := u.readValue().(string)
			object[key] = u.readValue()
		}
		return object
	}
	return nil
}

func (u *unpacking) readByte() byte {
	b := u.rest[0]
	u.rest = u.rest[1:]
	return b
}

func (u *unpacking) readUvarint() (n uint64) {
	for shift := 0; ; shift += 7 {
		b := u.readByte()
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
}

func (u *unpacking) readLiteral() string {
	length := u.readUvarint()
	text := u.rest[:length]
	u.rest = u.rest[length:]
	return text
}
