// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel

import (
	"fmt"
	"unicode/utf8"
)

// reader reads a part of the binary. It never reads past the end of the part. Its errors contain the offset in the
// whole binary, so that a developer can find the byte.
type reader struct {
	data    []byte
	pos     int
	base    int // offset of data in the whole binary
	section string
}

func (r *reader) offset() int    { return r.base + r.pos }
func (r *reader) bytesLeft() int { return len(r.data) - r.pos }
func (r *reader) isDone() bool   { return r.pos == len(r.data) }

func (r *reader) errorf(format string, args ...any) error {
	return &FormatError{Offset: r.offset(), Section: r.section, Reason: fmt.Sprintf(format, args...)}
}

func (r *reader) unsupported(feature string) error {
	return &UnsupportedError{Offset: r.offset(), Feature: feature}
}

func (r *reader) checkLimit(what string, value, limit uint64) error {
	if value <= limit {
		return nil
	}
	return &LimitError{What: what, Value: value, Max: limit, Offset: r.offset()}
}

func (r *reader) readByte() (byte, error) {
	if r.isDone() {
		return 0, r.errorf("unexpected end")
	}
	b := r.data[r.pos]
	r.pos++
	return b, nil
}

func (r *reader) skipBytes(n uint64) error {
	if n > uint64(r.bytesLeft()) {
		return r.errorf("%d bytes announced, %d left", n, r.bytesLeft())
	}
	r.pos += int(n)
	return nil
}

// subReader returns a reader for the next n bytes, and skips them in r.
func (r *reader) subReader(n uint32, section string) (*reader, error) {
	start := r.pos
	if err := r.skipBytes(uint64(n)); err != nil {
		return nil, err
	}
	return &reader{data: r.data[start:r.pos], base: r.base + start, section: section}, nil
}

// readU32 reads an unsigned LEB128 number of at most 32 bits.
func (r *reader) readU32() (uint32, error) {
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		b, err := r.readByte()
		if err != nil {
			return 0, err
		}
		if shift == 28 && b > 0x0f {
			return 0, r.errorf("number longer than 32 bits")
		}
		v |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, r.errorf("number longer than 32 bits")
}

// readSigned reads a signed LEB128 number of at most the given number of bits.
func (r *reader) readSigned(bits int) (int64, error) {
	var v int64
	for shift := 0; shift < bits; shift += 7 {
		b, err := r.readByte()
		if err != nil {
			return 0, err
		}
		v |= int64(b&0x7f) << shift
		if b < 0x80 {
			if shift+7 < 64 && b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v, nil
		}
	}
	return 0, r.errorf("number longer than %d bits", bits)
}

// readCount reads the length of a vector whose elements have at least one byte each. It returns an error if the rest of
// the section is too short for this length, so that a false length causes no large allocation.
func (r *reader) readCount(what string, limit uint32) (uint32, error) {
	n, err := r.readU32()
	if err != nil {
		return 0, err
	}
	if err := r.checkLimit(what, uint64(n), uint64(limit)); err != nil {
		return 0, err
	}
	if uint64(n) > uint64(r.bytesLeft()) {
		return 0, r.errorf("%d %s announced, %d bytes left", n, what, r.bytesLeft())
	}
	return n, nil
}

func (r *reader) readName() (string, error) {
	n, err := r.readU32()
	if err != nil {
		return "", err
	}
	start := r.pos
	if err := r.skipBytes(uint64(n)); err != nil {
		return "", err
	}
	s := string(r.data[start:r.pos])
	if !utf8.ValidString(s) {
		return "", r.errorf("name is not UTF-8")
	}
	return s, nil
}

// readEach calls read n times. It returns an error if bytes of the section are left afterwards.
func (r *reader) readEach(n uint32, read func(i uint32) error) error {
	for i := range n {
		if err := read(i); err != nil {
			return err
		}
	}
	if !r.isDone() {
		return r.errorf("%d bytes too many", r.bytesLeft())
	}
	return nil
}
