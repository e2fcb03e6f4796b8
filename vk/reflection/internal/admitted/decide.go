// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package admitted

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Field is a field whose stored value differs from the value that was sent.
type Field struct {
	Path    []string
	Dropped bool // whether no value is stored
	Similar bool // whether the values differ only in the notation of quantities
	whole   bool // whether only the virtual kubelet writes the copy
}

func (f Field) String() string { return strings.ReplaceAll(strings.Join(f.Path, "."), ".[", "[") }

// Differences returns the fields of a sent object whose stored values differ, sorted by path. It ignores additional
// stored fields. It also ignores the labels and annotations of the protocol between the clusters, because admission
// must not change them.
func Differences(sent, stored map[string]any) (fields []Field) {
	walk(nil, sent, false, func(path []string, value any) bool {
		present, below := at(stored, path)
		if _, isMap := value.(map[string]any); isMap && below {
			return true
		}
		if !document.Of(value).CoveredBy(document.Of(present)) && (present != nil || !raw.IsEmpty(value)) {
			fields = append(fields, Field{slices.Clone(path), present == nil, isSimilar(value, present), false})
		}
		return false
	})
	slices.SortFunc(fields, func(a, b Field) int { return slices.Compare(a.Path, b.Path) })
	return fields
}

// Content describes the location of the content in a copy that only the virtual kubelet writes.
type Content struct {
	// Path is the path of the content. If it is empty, the object itself is the content. Fields outside of the content
	// may get defaults from the API server.
	Path []string
	// InPart means that only some fields of the content are compared. List items are then neither added to an existing
	// copy nor removed from it.
	InPart bool
}

// DifferencesOfWhole returns the fields about which admission has decided in a copy that only the virtual kubelet
// writes, sorted by path. These are the fields whose values in the response to a write differ from the values that were
// sent. They include labels, annotations and fields of the content that were added. Fields of the content that were not
// stored do not count: the API server has dropped them because it does not know them, and the next write sends them
// again.
func DifferencesOfWhole(sent, stored map[string]any, content Content) (fields []Field) {
	walk(nil, sent, true, func(path []string, value any) bool {
		present, _ := at(stored, path)
		switch {
		case content.canDescend(path, value, present):
			fields = append(fields, content.added(path, value, present)...)
			return true
		case document.Of(value).Equal(document.Of(present)), raw.IsEmpty(value) && raw.IsEmpty(present):
		case len(newItems(value, present)) > 0:
			fields = append(fields, addedItems(path, value, present)...)
		case present != nil || path[0] == "metadata":
			fields = append(fields, Field{slices.Clone(path), present == nil, isSimilar(value, present) && isSimilar(present, value), true})
		}
		return false
	})
	for _, path := range addedMetadata(sent, stored) {
		fields = append(fields, Field{Path: path, whole: true})
	}
	slices.SortFunc(fields, func(a, b Field) int { return slices.Compare(a.Path, b.Path) })
	return fields
}

// added returns the fields in a map of the content that were stored but not sent.
func (c Content) added(path []string, sent, stored any) (fields []Field) {
	if path[0] == "metadata" || len(path) < len(c.Path) || !slices.Equal(path[:len(c.Path)], c.Path) {
		return nil
	}
	requested := raw.Map(sent)
	for key, value := range raw.Map(stored) {
		at := append(slices.Clone(path), key)
		switch _, has := requested[key]; {
		case has || raw.IsEmpty(value):
		case len(newItems(nil, value)) > 0:
			fields = append(fields, addedItems(at, nil, value)...)
		default:
			fields = append(fields, Field{Path: at, whole: true})
		}
	}
	return fields
}

// addedMetadata returns the paths of labels and annotations that are stored but were not requested.
func addedMetadata(requested, stored map[string]any) (paths [][]string) {
	for _, field := range []string{"labels", "annotations"} {
		for key := range raw.Map(raw.Map(stored["metadata"])[field]) {
			path := []string{"metadata", field, key}
			if value, _ := at(requested, path); value == nil && !isIdentity(path[:2], key) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// addedItems returns the result of newItems as fields.
func addedItems(path []string, sent, stored any) (fields []Field) {
	for _, item := range newItems(sent, stored) {
		fields = append(fields, Field{Path: append(slices.Clone(path), itemKey(item)), whole: true})
	}
	return fields
}

// newItems returns the items that were added to a list of maps without names. It returns nil if the lists also differ
// in another way, and for any other list. In a list of texts, such as the arguments of a program, the meaning of an
// item depends on its place.
func newItems(sent, stored any) (added []any) {
	requested, isList := sent.([]any)
	items := unnamed(stored)
	if items == nil || sent != nil && !isList {
		return nil
	}
	for _, item := range stored.([]any) {
		if len(requested) > 0 && document.Of(requested[0]).Equal(document.Of(item)) {
			requested = requested[1:]
		} else {
			added = append(added, item)
		}
	}
	if len(requested) > 0 {
		return nil
	}
	return added
}

// canDescend reports whether two values of a field are compared part by part. It returns true for maps, and for lists
// of named items in the same order. All other lists are compared as a whole, so that the next write sends exactly the
// stored list, unless items were only added.
func (c Content) canDescend(path []string, sent, stored any) bool {
	if isAtomic(path) {
		return false
	}
	_, isMap := sent.(map[string]any)
	_, otherIsMap := stored.(map[string]any)
	if isMap && otherIsMap {
		return true
	}
	if named(sent) == nil || named(stored) == nil {
		return false
	}
	return c.InPart || slices.EqualFunc(sent.([]any), stored.([]any), func(a, b any) bool { return raw.Map(a)["name"] == raw.Map(b)["name"] })
}

// isAtomic reports whether a field is compared as a whole in a copy that only the virtual kubelet writes. This is the
// case for resources, because a request and its limit must be consistent.
func isAtomic(path []string) bool { return path[0] != "metadata" && path[len(path)-1] == "resources" }

// isItem reports whether a path is the path of a named item in a list. There are decisions about the fields of such an
// item, but not about the item itself.
func isItem(path []string) bool { return strings.HasPrefix(path[len(path)-1], "[") }

// itemKey returns the path segment of a list item without a name.
func itemKey(item any) string { return "[#" + strconv.FormatUint(document.Hash(item), 36) + "]" }

// unnamed returns the items in a list of maps by itemKey. It returns nil for a list of named items.
func unnamed(list any) map[string]any {
	items, _ := list.([]any)
	if len(items) == 0 || named(list) != nil {
		return nil
	}
	byContent := make(map[string]any, len(items))
	for _, item := range items {
		if raw.Map(item) == nil {
			return nil
		}
		byContent[itemKey(item)] = item
	}
	return byContent
}

// named returns the items in a list by "[NAME]". It returns nil if an item has no name, or if two items have the same
// name.
func named(list any) map[string]any {
	items, _ := list.([]any)
	byName := make(map[string]any, len(items))
	for _, item := range items {
		if name, ok := raw.Map(item)["name"].(string); ok {
			byName["["+name+"]"] = item
		}
	}
	if len(items) == 0 || len(byName) < len(items) {
		return nil
	}
	return byName
}

// OfMetadata returns the labels and annotations among the fields.
func OfMetadata(fields []Field) []Field {
	return slices.DeleteFunc(slices.Clone(fields), func(field Field) bool { return field.Path[0] != "metadata" })
}

// With returns the record with additional decisions about fields. requested is the object before admission, and stored
// is the object after it. If all fields are similar, no decision is added, because API servers normalize quantities.
func (r *Record) With(fields []Field, requested, stored map[string]any) *Record {
	next := &Record{fields: map[uint64]decision{}}
	if r != nil {
		next.whole = r.whole
		maps.Copy(next.fields, r.fields)
	}
	if AreSimilar(fields) {
		return next
	}
	for _, field := range fields {
		asked, _ := at(requested, field.Path)
		present, _ := at(stored, field.Path)
		next.whole = field.whole
		next.fields[hashPath(field.Path)] = decision{hashOf(asked), hashStored(asked, present, field.whole)}
	}
	return next
}

// Apply changes requested: each field about which admission has decided gets the stored value. A decision is valid as
// long as the same value is requested and the result of the decision is still stored. Apply returns a record with the
// valid decisions.
func (r *Record) Apply(requested, stored map[string]any) *Record {
	kept := &Record{fields: map[uint64]decision{}}
	if r.IsEmpty() {
		return kept
	}
	kept.whole = r.whole
	var decided [][]string
	walk(nil, requested, r.whole, func(path []string, value any) bool {
		known, ok := r.fields[hashPath(path)]
		if !ok || isItem(path) {
			return true
		}
		present, _ := at(stored, path)
		if known.requested != hashOf(value) || known.stored != hashStored(value, present, r.whole) {
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
		switch present, _ := at(stored, path); {
		case present == nil:
			delete(fields, key)
		case r.whole:
			fields[key] = present
		default:
			fields[key] = requestedPart(fields[key], present)
		}
	}
	if r.whole {
		r.addMetadata(requested, stored, kept)
		r.addContent(nil, requested, stored, kept)
	}
	return kept
}

// addContent adds to requested those fields of the content that admission has added to the copy.
func (r *Record) addContent(path []string, requested, stored map[string]any, kept *Record) {
	for key, present := range stored {
		if isIdentity(path, key) || len(path) == 0 && key == "metadata" {
			continue
		}
		at := append(path, key)
		value, has := requested[key]
		switch known, ok := r.fields[hashPath(at)]; {
		case !isAtomic(at) && r.addItems(requested, at, value, present, kept):
		case has && !isAtomic(at):
			r.addContent(at, parts(value), parts(present), kept)
		case !has && ok && !isItem(at) && known.requested == absent && known.stored == hashOf(present):
			kept.fields[hashPath(at)] = known
			requested[key] = present
		}
	}
}

// addItems adds to a list in requested those items that admission has added to the same list of the copy. It reports
// whether it has added any.
func (r *Record) addItems(requested map[string]any, path []string, value, present any, kept *Record) (isChanged bool) {
	list, isList := value.([]any)
	if unnamed(present) == nil || value != nil && !isList {
		return false
	}
	for _, item := range present.([]any) {
		at := append(path, itemKey(item))
		known, ok := r.fields[hashPath(at)]
		isRequested := slices.ContainsFunc(list, func(other any) bool { return document.Of(other).Equal(document.Of(item)) })
		if !ok || isRequested || known.requested != absent || known.stored != hashOf(item) {
			continue
		}
		kept.fields[hashPath(at)] = known
		list, isChanged = append(slices.Clip(list), item), true
	}
	if isChanged {
		requested[path[len(path)-1]] = list
	}
	return isChanged
}

// parts returns the fields of a map, or the named items of a list, as a map.
func parts(value any) map[string]any {
	if fields, ok := value.(map[string]any); ok {
		return fields
	}
	return named(value)
}

// addMetadata adds to requested the labels and annotations that admission has added to the copy.
func (r *Record) addMetadata(requested, stored map[string]any, kept *Record) {
	for _, path := range addedMetadata(requested, stored) {
		known, ok := r.fields[hashPath(path)]
		present, _ := at(stored, path)
		if !ok || known.requested != absent || known.stored != hashOf(present) {
			continue
		}
		kept.fields[hashPath(path)] = known
		metadata := raw.Map(requested["metadata"])
		fields := raw.Map(metadata[path[1]])
		if fields == nil {
			fields = map[string]any{}
			metadata[path[1]] = fields
		}
		fields[path[2]] = present
	}
}

// walk calls visit for each reflected field of an object. If visit returns true for a map, walk also visits the fields
// of the map. If items is true, it also visits the fields of named list items. The path is valid only during the call.
func walk(path []string, fields map[string]any, items bool, visit func(path []string, value any) (below bool)) {
	for key, value := range fields {
		if isIdentity(path, key) {
			continue
		}
		at := append(path, key)
		below, _ := value.(map[string]any)
		structural := len(at) == 1 && key == "metadata" || len(at) == 2 && path[0] == "metadata"
		if !structural && !visit(at, value) {
			continue
		}
		switch {
		case items && isAtomic(at):
			continue
		case items && below == nil:
			below = named(value)
		}
		walk(at, below, items, visit)
	}
}

// isIdentity reports whether admission cannot decide about a field, because it identifies the object, or is a label or
// annotation of the protocol between the clusters.
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

// at returns the value at a path, and whether the value is a map. It returns nil if there is no value.
func at(object map[string]any, path []string) (value any, isMap bool) {
	value = object
	for _, key := range path {
		fields, ok := value.(map[string]any)
		if !ok {
			if fields = named(value); fields == nil {
				fields = unnamed(value)
			}
			if fields == nil {
				return nil, false
			}
		}
		value = fields[key]
	}
	_, isMap = value.(map[string]any)
	return value, isMap
}
