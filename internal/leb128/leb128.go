// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package leb128 encodes the signed integers of WebAssembly modules. Unsigned integers are encoded with
// [encoding/binary.AppendUvarint].
package leb128

// AppendSigned appends v in its shortest encoding.
func AppendSigned(out []byte, v int64) []byte {
	for {
		b := byte(v & 0x7f)
		v >>= 7
		if v == 0 && b&0x40 == 0 || v == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}
