// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package asked records in an object the values that a controller last requested.
//
// After a controller has written an object, admission, an autoscaler or an administrator may change fields of it. The
// controller must not revert these changes. Therefore it writes a field only if it requests a different value than the
// last time. Otherwise the field keeps its actual value. The record of the last requested values is an annotation of
// the object. It is written in the same request as the values, so that it costs no extra request and survives a restart
// of the controller.
//
// The annotation contains hashes: 4 bytes for a field, 5 for its value. A client that can write the annotation can make
// the controller skip a requested change of this object, or revert another client's change. It cannot make the
// controller write other values or other objects.
package asked

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
)

// Annotation is the key of the annotation with the record.
const Annotation = "controllers.refract.io/asked"

// version is the prefix of a record. Records with another prefix are ignored.
const version = "v1:"

// maxBytes limits the size of the annotation, because all annotations of an object together may have at most 256 KiB. A
// larger record is not written.
const maxBytes = 64 << 10

const (
	fieldBytes = 4
	valueBytes = 5
)

// Values contains hashes of the requested fields and of their values.
type Values map[[fieldBytes]byte][valueBytes]byte

// Set records that value was requested for the field with the given path.
func (v Values) Set(value string, path ...string) {
	sum := sha256.Sum256([]byte(value))
	v[fieldOf(path)] = [valueBytes]byte(sum[:valueBytes])
}

// Has reports whether value was the last value requested for the field with the given path.
func (v Values) Has(value string, path ...string) bool {
	sum := sha256.Sum256([]byte(value))
	last, ok := v[fieldOf(path)]
	return ok && last == [valueBytes]byte(sum[:valueBytes])
}

// Keep copies the entry for the field with the given path from last, if there is one.
func (v Values) Keep(last Values, path ...string) {
	if value, ok := last[fieldOf(path)]; ok {
		v[fieldOf(path)] = value
	}
}

// Forget removes the entry for the field with the given path.
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

// Record holds the last requested values.
type Record struct {
	// Metadata contains the labels and annotations. Content contains all other fields.
	Metadata, Content Values
}

// Read returns the record in the annotations of an object. It returns nil if the record is missing or cannot be read.
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

// Text returns the value of the annotation. It is empty for a nil record and for a record that is too large.
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
