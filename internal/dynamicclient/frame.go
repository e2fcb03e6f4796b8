// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package dynamicclient

import (
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// frameReader returns one JSON value after the other from a stream, one a Read, as runtime.Framer wants it.
type frameReader struct {
	stream  io.ReadCloser
	decoder *jsontext.Decoder
	// rest of a value that did not fit into the last Read's buffer.
	rest []byte
	// lost is the error of the stream itself.
	lost error
}

func newFrameReader(stream io.ReadCloser) *frameReader {
	f := &frameReader{stream: stream}
	f.decoder = jsontext.NewDecoder(readFunc(f.read), lenient...)
	return f
}

type readFunc func([]byte) (int, error)

func (r readFunc) Read(p []byte) (int, error) { return r(p) }

func (f *frameReader) read(p []byte) (int, error) {
	n, err := f.stream.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // readers return it bare
		f.lost = err
	}
	return n, err
}

// lenient accepts what client-go accepts: the last of two equal keys counts, and bytes that are no text are replaced.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// Read copies the next value, or as much of it as fits: then the error is io.ErrShortBuffer and the next Read goes on.
func (f *frameReader) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		value, err := f.decoder.ReadValue()
		if err != nil {
			return 0, f.plain(err)
		}
		f.rest = value
	}
	n := copy(p, f.rest)
	if f.rest = f.rest[n:]; len(f.rest) > 0 {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

// plain returns the error of the stream itself where there is one. A watch whose connection is lost goes on where it was;
// one that is thought to send rubbish is restarted, by a list, and later.
func (f *frameReader) plain(err error) error {
	switch {
	case f.lost != nil:
		return f.lost
	case errors.Is(err, io.ErrUnexpectedEOF):
		return io.ErrUnexpectedEOF
	default:
		return err
	}
}

func (f *frameReader) Close() error { return f.stream.Close() }
