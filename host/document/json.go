// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// AppendJSON appends the value to dst as compact JSON with sorted keys. An absent value becomes null.
func (v View) AppendJSON(dst []byte) []byte {
	dst, _ = v.Encode(dst)
	return dst
}

// Encode does the same as AppendJSON, and also returns the work of the encoding, in units of TakeWork. TakeWork does
// not include this work.
func (v View) Encode(dst []byte) (_ []byte, work int64) {
	keys := new([]string)
	if v.d != nil {
		keys = &v.d.keys
	}
	begun := len(dst)
	dst = appendJSON(dst, v, keys, &work)
	return dst, work + int64(len(dst)-begun)
}

// SortWork returns the work of sorting n strings with size bytes in total, in units of TakeWork.
func SortWork(n, size int) int64 {
	steps := int64(bits.Len(uint(n)))
	return int64(n)*(workEntry+8*steps) + int64(size)*steps/16
}

func appendJSON(dst []byte, v View, keys *[]string, work *int64) []byte {
	switch v.kind {
	case String:
		s, _ := v.Text()
		return appendString(dst, s)
	case Int:
		i, _ := v.Int()
		return strconv.AppendInt(dst, i, 10)
	case Float:
		f, _ := v.Float()
		return appendFloat(dst, f)
	case Bool:
		b, _ := v.Bool()
		return strconv.AppendBool(dst, b)
	case Map:
		return appendMap(dst, v, keys, work)
	case List:
		dst = append(dst, '[')
		*work += workEntry * int64(v.Len())
		for i := range v.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSON(dst, v.Index(i), keys, work)
		}
		return append(dst, ']')
	}
	return append(dst, "null"...)
}

// appendMap appends a map as JSON. It uses keys as a stack: each level of nesting pushes its sorted keys.
func appendMap(dst []byte, v View, keys *[]string, work *int64) []byte {
	start := len(*keys)
	*keys = v.Keys(*keys)
	end, size := len(*keys), 0
	dst = append(dst, '{')
	for i := start; i < end; i++ {
		if i > start {
			dst = append(dst, ',')
		}
		k := (*keys)[i]
		dst = append(appendString(dst, k), ':')
		size += len(k)
		dst = appendJSON(dst, v.Field(k), keys, work)
	}
	*work += SortWork(end-start, size)
	clear((*keys)[start:])
	*keys = (*keys)[:start]
	return append(dst, '}')
}

const hexDigits = "0123456789abcdef"

func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		dst = appendEscape(append(dst, s[start:i]...), c)
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// appendFloat appends a float in the format of ECMAScript and encoding/json. NaN and infinities become null, because
// JSON does not have them.
func appendFloat(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	abs := math.Abs(f)
	if abs == 0 || abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if n := len(dst); n >= 4 && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
