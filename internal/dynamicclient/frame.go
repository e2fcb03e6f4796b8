// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package dynamicclient

import (
	"bytes"
	"fmt"
	"io"
)

// frameReader splits a stream into JSON objects, one for each Read, as runtime.Framer requires. It does not validate
// the objects; their decoder does.
type frameReader struct {
	stream io.ReadCloser
	unread []byte // the part of buffer that has not been returned yet
	// buffer is small because most watches are idle, and a virtual kubelet with a hundred namespaces has a thousand of
	// them.
	buffer [1 << 10]byte
	lost   error // error of the stream, which is returned after all data has been read
	scan   scan
}

func newFrameReader(stream io.ReadCloser) *frameReader { return &frameReader{stream: stream} }

// Read copies the next object. If the object does not fit, Read returns io.ErrShortBuffer, and the next Read continues.
// Errors of the stream are returned unchanged, because client-go resumes a watch after a lost connection, but starts
// over with a list after invalid data.
func (f *frameReader) Read(p []byte) (n int, err error) {
	if !f.scan.isWithin() {
		if err := f.skipSpace(); err != nil {
			return 0, err
		}
	}
	for n < len(p) {
		if err := f.fillBuffer(); err == io.EOF { //nolint:errorlint // readers return it bare
			return n, io.ErrUnexpectedEOF
		} else if err != nil {
			return n, err
		}
		next := f.unread[:min(len(f.unread), len(p)-n)]
		end := f.scan.endOf(next)
		if end >= 0 {
			next = next[:end]
		}
		n += copy(p[n:], next)
		f.unread = f.unread[len(next):]
		if end >= 0 {
			return n, nil
		}
	}
	return n, io.ErrShortBuffer
}

// skipSpace skips white space before the next object.
func (f *frameReader) skipSpace() error {
	for {
		if err := f.fillBuffer(); err != nil {
			return err
		}
		for i, c := range f.unread {
			switch c {
			case ' ', '\t', '\r', '\n':
				continue
			case '{':
				f.unread = f.unread[i:]
				return nil
			}
			return fmt.Errorf("the stream has %q where a JSON object should begin", c)
		}
		f.unread = nil
	}
}

// fillBuffer reads from the stream until there is unread data.
func (f *frameReader) fillBuffer() error {
	for len(f.unread) == 0 {
		if f.lost != nil {
			return f.lost
		}
		var n int
		n, f.lost = f.stream.Read(f.buffer[:])
		f.unread = f.buffer[:n]
	}
	return nil
}

func (f *frameReader) Close() error { return f.stream.Close() }

// scan finds the end of a JSON object or list by counting brackets.
type scan struct {
	depth             int
	inString, escaped bool
}

// isWithin reports whether the scan is inside an object.
func (s *scan) isWithin() bool { return s.depth > 0 }

// endOf returns the index of the end of the object whose text continues in data, or -1 if the object does not end in
// data.
func (s *scan) endOf(data []byte) int {
	for i := 0; i < len(data); i++ {
		if s.inString {
			skipped := s.skipString(data[i:])
			if skipped < 0 {
				return -1
			}
			i += skipped
			continue
		}
		switch data[i] {
		case '"':
			s.inString = true
		case '{', '[':
			s.depth++
		case '}', ']':
			if s.depth--; s.depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// skipString returns the index of the closing quote of the string whose text continues in data, or -1 if the string
// does not end in data.
func (s *scan) skipString(data []byte) int {
	if quote := bytes.IndexByte(data, '"'); !s.escaped && quote >= 0 && bytes.IndexByte(data[:quote], '\\') < 0 {
		s.inString = false
		return quote
	}
	for i, c := range data {
		switch {
		case s.escaped:
			s.escaped = false
		case c == '\\':
			s.escaped = true
		case c == '"':
			s.inString = false
			return i
		}
	}
	return -1
}
