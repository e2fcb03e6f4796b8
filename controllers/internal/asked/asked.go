// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package asked records in an object which values a controller has asked for last.
//
// Others may change an object that a controller makes: the admission of the cluster, an autoscaler, an administrator. Whether a value that
// differs is to be written is decided by three values: the one that was asked for last, the one that is asked for now, and the one that the
// object has. A value that is asked for as before is left as it is, whatever the object has. The record is an annotation of the object, written
// in the same request as the values, so that it costs no request and outlives the controller.
//
// The annotation contains hashes: of a field 4 bytes, of its value 5. Whoever can write it can have a change that is asked for omitted, or a
// change of others undone, in this object. It permits nothing that the controller would not write otherwise.
package asked

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
)

// Annotation has the record of the object that it is on.
const Annotation = "controllers.refract.io/asked"

// version begins the text of a record. A record of another version is unknown.
const version = "v1:"

// maxBytes limits the annotation: an object has at most 256 KiB of annotations. A larger record is not written.
const maxBytes = 64 << 10

const (
	fieldBytes = 4
	valueBytes = 5
)

// Values are the fields that were asked for, with their values.
type Values map[[fieldBytes]byte][valueBytes]byte

// Set records that value was asked for in the field with the given path.
func (v Values) Set(value string, path ...string) {
	sum := sha256.Sum256([]byte(value))
	v[fieldOf(path)] = [valueBytes]byte(sum[:valueBytes])
}

// Has reports whether value was asked for last in the field with the given path.
func (v Values) Has(value string, path ...string) bool {
	sum := sha256.Sum256([]byte(value))
	last, ok := v[fieldOf(path)]
	return ok && last == [valueBytes]byte(sum[:valueBytes])
}

// Keep records of the field with the given path what last has.
func (v Values) Keep(last Values, path ...string) {
	if value, ok := last[fieldOf(path)]; ok {
		v[fieldOf(path)] = value
	}
}

// Forget removes the field with the given path.
func (v Values) Forget(path ...string) { delete(v, fieldOf(path)) }

func fieldOf(path []string) [fieldBytes]byte {
	sum := sha256.Sum256([]byte(strings.Join(path, "\x00")))
	return [fieldBytes]byte(sum[:fieldBytes])
}

func (v Values) text() string {
	entries := make([]byte, 0, len(v)*(fieldBytes+valueBytes))
	for _, field := range slices.SortedFunc(maps.Keys(v), func(a, b [fieldBytes]byte) int { return bytes.Compare(a[:], b[:]) }) {
		value := v[field]
		entries = append(append(entries, field[:]...), value[:]...)
	}
	return base64.RawURLEncoding.EncodeToString(entries)
}

func parse(text string) (Values, bool) {
	entries, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(entries)%(fieldBytes+valueBytes) != 0 {
		return nil, false
	}
	values := make(Values, len(entries)/(fieldBytes+valueBytes))
	for entry := range slices.Chunk(entries, fieldBytes+valueBytes) {
		values[[fieldBytes]byte(entry)] = [valueBytes]byte(entry[fieldBytes:])
	}
	return values, true
}

// Record has the values that were asked for last.
type Record struct {
	// Metadata are the labels and annotations, Content everything else.
	Metadata, Content Values
}

// Read returns the record in the annotations of an object, nil if there is none or it cannot be read.
func Read(annotations map[string]string) *Record {
	text, ok := strings.CutPrefix(annotations[Annotation], version)
	metadata, content, separated := strings.Cut(text, ".")
	if !ok || !separated {
		return nil
	}
	record := &Record{}
	if record.Metadata, ok = parse(metadata); !ok {
		return nil
	}
	if record.Content, ok = parse(content); !ok {
		return nil
	}
	return record
}

// Text returns the value of the annotation, "" without a record (nil) and for one that is too large.
func (r *Record) Text() string {
	if r == nil {
		return ""
	}
	text := version + r.Metadata.text() + "." + r.Content.text()
	if len(text) > maxBytes {
		return ""
	}
	return text
}
