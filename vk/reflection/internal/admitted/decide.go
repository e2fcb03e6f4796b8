// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package admitted

import (
	"maps"
	"slices"
	"strings"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Field is a field whose stored value is not the one that was sent.
type Field struct {
	Path    []string
	Dropped bool // nothing is stored
	Similar bool // the values differ only in how quantities are written
}

func (f Field) String() string { return strings.Join(f.Path, ".") }

// Differences returns the fields of an object that was sent whose stored values differ, sorted by path. Fields that were stored in addition do not
// count, nor do the labels and annotations of the protocol between the clusters, which nobody else decides about.
func Differences(sent, stored map[string]any) (fields []Field) {
	walk(nil, sent, func(path []string, value any) bool {
		present, below := at(stored, path)
		if _, isMap := value.(map[string]any); isMap && below {
			return true
		}
		if !document.Of(value).CoveredBy(document.Of(present)) && (present != nil || !raw.IsEmpty(value)) {
			fields = append(fields, Field{slices.Clone(path), present == nil, isSimilar(value, present)})
		}
		return false
	})
	slices.SortFunc(fields, func(a, b Field) int { return slices.Compare(a.Path, b.Path) })
	return fields
}

// OfMetadata returns the labels and annotations among the fields.
func OfMetadata(fields []Field) []Field {
	return slices.DeleteFunc(slices.Clone(fields), func(field Field) bool { return field.Path[0] != "metadata" })
}

// With returns the record with decisions about fields added: requested is the object as it was requested, and stored as it was stored. Nothing is added
// if all are similar: API servers write quantities in their own way.
func (r *Record) With(fields []Field, requested, stored map[string]any) *Record {
	next := &Record{fields: map[uint64]decision{}}
	if r != nil {
		maps.Copy(next.fields, r.fields)
	}
	if AreSimilar(fields) {
		return next
	}
	for _, field := range fields {
		asked, _ := at(requested, field.Path)
		present, _ := at(stored, field.Path)
		next.fields[hashPath(field.Path)] = decision{document.Hash(asked), hashStored(asked, present)}
	}
	return next
}

// Apply copies stored values to requested, for the fields that admission has decided about. A decision holds while the same value is requested, and its
// result is still stored. Apply modifies requested, and returns the record of the decisions that hold.
func (r *Record) Apply(requested, stored map[string]any) *Record {
	kept := &Record{fields: map[uint64]decision{}}
	if r.IsEmpty() {
		return kept
	}
	var decided [][]string
	walk(nil, requested, func(path []string, value any) bool {
		known, ok := r.fields[hashPath(path)]
		if !ok {
			return true
		}
		present, _ := at(stored, path)
		if known.requested != document.Hash(value) || known.stored != hashStored(value, present) {
			return true
		}
		kept.fields[hashPath(path)] = known
		decided = append(decided, slices.Clone(path))
		return false
	})
	for _, path := range decided {
		parent, _ := at(requested, path[:len(path)-1])
		fields := parent.(map[string]any)
		key := path[len(path)-1]
		if present, _ := at(stored, path); present != nil {
			fields[key] = requestedPart(fields[key], present)
		} else {
			delete(fields, key)
		}
	}
	return kept
}

// walk calls visit for the fields of an object that it carries over, and for those below a map if visit returns true for it. The path is valid during
// the call.
func walk(path []string, fields map[string]any, visit func(path []string, value any) (below bool)) {
	for key, value := range fields {
		if isIdentity(path, key) {
			continue
		}
		at := append(path, key)
		below, isMap := value.(map[string]any)
		structural := len(at) == 1 && key == "metadata" || len(at) == 2 && path[0] == "metadata"
		if (structural || visit(at, value)) && isMap {
			walk(at, below, visit)
		}
	}
}

// isIdentity reports whether nobody may decide about a field: what identifies an object, and the labels and annotations of the protocol.
func isIdentity(path []string, key string) bool {
	switch {
	case len(path) == 0:
		return key == "apiVersion" || key == "kind" || key == "status"
	case path[0] != "metadata":
		return false
	case len(path) == 1:
		return key != "labels" && key != "annotations"
	}
	return wire.IsProtocolKey(key)
}

// at returns the value at a path, and whether it is a map. A missing value is nil.
func at(object map[string]any, path []string) (value any, isMap bool) {
	value = object
	for _, key := range path {
		fields, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		value = fields[key]
	}
	_, isMap = value.(map[string]any)
	return value, isMap
}
