// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package dynamicclient

import (
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// frameReader returns one JSON value after the other from a stream, one a Read, as runtime.Framer wants it.
type frameReader struct {
	stream  io.ReadCloser
	decoder *jsontext.Decoder
	// rest of a value that did not fit into the last Read's buffer.
	rest []byte
}

func newFrameReader(stream io.ReadCloser) *frameReader {
	return &frameReader{stream: stream, decoder: jsontext.NewDecoder(stream, lenient...)}
}

// lenient accepts what client-go accepts: the last of two equal keys counts, and bytes that are no text are replaced.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// Read copies the next value, or as much of it as fits: then the error is io.ErrShortBuffer and the next Read goes on.
func (f *frameReader) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		value, err := f.decoder.ReadValue()
		if err != nil {
			return 0, err
		}
		f.rest = value
	}
	n := copy(p, f.rest)
	if f.rest = f.rest[n:]; len(f.rest) > 0 {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

func (f *frameReader) Close() error { return f.stream.Close() }
