// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package dynamicclient

import (
	"bytes"
	"fmt"
	"io"
)

// frameReader returns one JSON object after the other from a stream, one a Read, as runtime.Framer wants it. It does not validate them:
// whoever decodes them does.
type frameReader struct {
	stream io.ReadCloser
	unread []byte // of buffer
	// buffer is small because most watches are idle, and a virtual kubelet with a hundred namespaces has a thousand of them.
	buffer [1 << 10]byte
	lost   error // of the stream, once all before it is read
	scan   scan
}

func newFrameReader(stream io.ReadCloser) *frameReader { return &frameReader{stream: stream} }

// Read copies the next object, or as much of it as fits: then the error is io.ErrShortBuffer and the next Read goes on. Errors of the
// stream are returned as they are: a watch whose connection is lost goes on where it was, while one that is thought to send rubbish is
// restarted, by a list, and later.
func (f *frameReader) Read(p []byte) (n int, err error) {
	if !f.scan.within() {
		if err := f.skipSpace(); err != nil {
			return 0, err
		}
	}
	for n < len(p) {
		if err := f.fill(); err == io.EOF { //nolint:errorlint // readers return it bare
			return n, io.ErrUnexpectedEOF
		} else if err != nil {
			return n, err
		}
		next := f.unread[:min(len(f.unread), len(p)-n)]
		end := f.scan.end(next)
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

// skipSpace goes to the next object.
func (f *frameReader) skipSpace() error {
	for {
		if err := f.fill(); err != nil {
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

// fill makes sure that something is unread.
func (f *frameReader) fill() error {
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

// scan finds the end of a JSON object or list by its brackets.
type scan struct {
	depth             int
	inString, escaped bool
}

// within reports whether an object has begun and not ended.
func (s *scan) within() bool { return s.depth > 0 }

// end returns where the object ends that data goes on with, -1 if that is not in data.
func (s *scan) end(data []byte) int {
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

// skipString returns the index of the quote that closes the string that data goes on with, -1 if that is not in data.
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
