// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package admitted records, in the copy of an object, which of the requested values the provider's admission has
// replaced.
//
// If another client on the provider changes a copy, the change is reverted. If the provider's admission changes a copy,
// the change is a decision of the provider. It is kept until another value is requested for the same field. The copy
// itself does not show whether a client or admission has changed it. In addition, a policy that applies only to
// creations does not repeat its decision in later writes. Therefore the decisions are recorded in an annotation of the
// copy: for each field, a hash of the requested value and a hash of the stored value. A copy that was stored as
// requested has no record.
//
// The fields of maps are compared one by one. A list counts as one field: a different value in one of its items is a
// decision about the whole list, which is kept until another list is requested. Only the requested fields of an item
// count, because API servers and controllers add further fields. Items that other managers own through server-side
// apply are neither decisions nor reverted. Another notation of a quantity, such as 1024Mi for 1Gi, is not a decision.
//
// Some copies, such as ShadowPods, are written only by the virtual kubelet, and each write replaces them. In such
// copies every value counts, including added ones, and list items with names, such as containers, are compared by
// name. If admission has added items to a list of maps without names, such as tolerations, each of these items is a
// decision: it is kept in the list whatever other items are requested later.
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

// Annotation is the annotation of a copy that contains its record.
const Annotation = wire.AdmittedAnnotation

// version is the prefix of a record's text. Records with another prefix are ignored.
const version = "v1:"

// maxBytes is the maximum size of the annotation. A larger record is not written, because all annotations of an object
// together may have at most 256 KiB.
const maxBytes = 64 << 10

// Record contains the decisions of admission about the fields of a copy. Records are immutable.
type Record struct {
	fields map[uint64]decision // decisions by the hash of the field's path
	whole  bool                // whether only the virtual kubelet writes the copy
}

// decision contains a hash of a field's requested value and a hash of its stored value.
type decision struct{ requested, stored uint64 }

// absent replaces the hash of a value that was not requested or is not stored.
const absent = 0

// IsEmpty reports whether the record contains no decisions.
func (r *Record) IsEmpty() bool { return r == nil || len(r.fields) == 0 }

// Equal reports whether two records contain the same decisions. A nil record equals an empty record.
func (r *Record) Equal(other *Record) bool { return r.Text() == other.Text() }

// Text returns the value of the annotation. It returns "" if the record is empty or exceeds maxBytes.
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

// ReadWhole returns the record in the annotations of a copy that only the virtual kubelet writes. For other copies, use
// Read.
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

// hashPath returns the hash of a path. The separator does not occur in the keys of maps.
func hashPath(path []string) uint64 { return document.Hash(strings.Join(path, "\x00")) }

// hashOf returns the hash of a value.
func hashOf(value any) uint64 {
	if value == nil {
		return absent
	}
	return document.Hash(value)
}

// hashStored returns a hash of the part of a stored value that was requested. If only the virtual kubelet writes the
// copy, it is a hash of the whole stored value.
func hashStored(requested, stored any, whole bool) uint64 {
	if stored == nil || whole {
		return hashOf(stored)
	}
	return document.Hash(requestedPart(requested, stored))
}

// requestedPart returns a stored value without the fields that were added to maps. This includes maps in lists.
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
