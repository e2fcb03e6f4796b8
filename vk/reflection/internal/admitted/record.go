// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package admitted records in a copy which of the requested values the provider's admission has replaced.
//
// A copy is enforced: changes of other clients of the provider are reverted. Admission decides for the provider, and its decision
// stands until another value is requested for the same field. The two look alike, and a policy that applies only to
// creations decides nothing later, so the decisions are kept: for each field a hash of the value that was requested, and of the one that
// was stored. The record is an annotation of the copy. A copy that was stored as requested has none, and costs nothing.
//
// Fields are compared one by one down to lists. A list is one field: another value in one of its items is a decision about the list, which stands until
// another list is requested. Of the items only the requested fields count: API servers and controllers add others. Items that other managers own by
// server-side apply are theirs, and are neither a decision nor reverted. Quantities that are written in another way, such as 1024Mi and 1Gi, are no decision.
//
// Copies that are wholly ours, which are replaced by each write, have no other managers. There each value counts, also one that was added, and the items of
// lists are compared by name where the same names are in the same order. The containers of an existing pod are always compared by name.
package admitted

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host/document"
)

// Annotation has the record of the copy that it is on.
const Annotation = wire.AdmittedAnnotation

// version begins the text of a record. A record of another version is unknown.
const version = "v1:"

// maxBytes limits the annotation: an object has at most 256 KiB of annotations. A larger record is not written.
const maxBytes = 64 << 10

// Record has the values that admission has replaced. Records are not modified.
type Record struct {
	fields map[uint64]decision // keyed by the hash of the path
	whole  bool                // the copy is wholly ours
}

// decision has the hashes of the value that was requested for a field, and of the one that was stored for it.
type decision struct{ requested, stored uint64 }

// absent is the hash of a field that was not requested, or not stored.
const absent = 0

// IsEmpty reports whether admission has replaced nothing.
func (r *Record) IsEmpty() bool { return r == nil || len(r.fields) == 0 }

// Equal reports whether two records contain the same decisions. nil is an empty record.
func (r *Record) Equal(other *Record) bool { return r.Text() == other.Text() }

// Text returns the value of the annotation, "" for an empty record, and for one that is too large.
func (r *Record) Text() string {
	if r.IsEmpty() {
		return ""
	}
	entries := make([]byte, 0, 24*len(r.fields))
	for _, path := range slices.Sorted(maps.Keys(r.fields)) {
		for _, part := range []uint64{path, r.fields[path].requested, r.fields[path].stored} {
			entries = binary.BigEndian.AppendUint64(entries, part)
		}
	}
	text := version + base64.RawURLEncoding.EncodeToString(entries)
	if len(text) > maxBytes {
		return ""
	}
	return text
}

// ReadWhole is Read for a copy that is wholly ours.
func ReadWhole(annotations map[string]any) *Record {
	record := Read(annotations)
	if record != nil {
		record.whole = true
	}
	return record
}

// Read returns the record in annotations. It returns nil if the record is missing or malformed.
func Read(annotations map[string]any) *Record {
	text, _ := annotations[Annotation].(string)
	encoded, ok := strings.CutPrefix(text, version)
	if !ok {
		return nil
	}
	entries, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(entries) == 0 || len(entries)%24 != 0 {
		return nil
	}
	record := &Record{fields: map[uint64]decision{}}
	for entry := range slices.Chunk(entries, 24) {
		record.fields[binary.BigEndian.Uint64(entry)] = decision{binary.BigEndian.Uint64(entry[8:]), binary.BigEndian.Uint64(entry[16:])}
	}
	return record
}

// hashPath returns the hash of a path. No key of a map has the separator.
func hashPath(path []string) uint64 { return document.Hash(strings.Join(path, "\x00")) }

// hashOf returns the hash of a value.
func hashOf(value any) uint64 {
	if value == nil {
		return absent
	}
	return document.Hash(value)
}

// hashStored returns the hash of the part of a stored value that was requested, or of all of it if the copy is wholly ours.
func hashStored(requested, stored any, whole bool) uint64 {
	if stored == nil || whole {
		return hashOf(stored)
	}
	return document.Hash(requestedPart(requested, stored))
}

// requestedPart returns a stored value without the fields that were added to maps, also to those in lists.
func requestedPart(requested, stored any) any {
	switch requested := requested.(type) {
	case map[string]any:
		if stored, ok := stored.(map[string]any); ok {
			part := make(map[string]any, len(requested))
			for key, value := range requested {
				if present, has := stored[key]; has {
					part[key] = requestedPart(value, present)
				}
			}
			return part
		}
	case []any:
		if stored, ok := stored.([]any); ok && len(stored) == len(requested) {
			part := make([]any, len(requested))
			for i := range requested {
				part[i] = requestedPart(requested[i], stored[i])
			}
			return part
		}
	}
	return stored
}
