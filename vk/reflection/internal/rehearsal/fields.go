// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rehearsal

import (
	"reflect"
	"strings"
	"sync"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// anyKey replaces keys in paths that a plugin has chosen.
const anyKey = "*"

// fieldNames returns the names of all fields of the kinds of Kubernetes.
var fieldNames = sync.OnceValue(func() map[string]bool {
	names, visited := map[string]bool{}, map[reflect.Type]bool{}
	for _, t := range scheme.Scheme.AllKnownTypes() {
		addFieldNames(t, names, visited)
	}
	return names
})

func addFieldNames(t reflect.Type, names map[string]bool, visited map[reflect.Type]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || visited[t] {
		return
	}
	visited[t] = true
	for field := range t.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			names[name] = true
		}
		addFieldNames(field.Type, names, visited)
	}
}

// publicKey returns a key of the value at a path, as a report may show it. Reports contain no values of objects, but a plugin can make
// a key of a value. So a key is replaced by anyKey, unless the object has it before any plugin runs, it is a field of Kubernetes, or
// plugins declare its path, because manifests are written before their plugins see objects.
func (f *findings) publicKey(path, key string, isOfObject bool) string {
	if isOfObject || fieldNames()[key] || f.declared[join(path, key)] {
		return key
	}
	return anyKey
}

// publicPath returns a path as a report may show it; see publicKey. object is the object before any plugin runs, or nil.
func (f *findings) publicPath(path string, object any) string {
	segments, err := fieldpath.Parse(path)
	if err != nil {
		return "[" + anyKey + "]"
	}
	public := ""
	for _, s := range segments {
		if list, isList := object.([]any); isList || index.MatchString(s.Key) {
			public, object = public+"[]", element(list, 0)
			continue
		}
		value, isOfObject := fieldOf(object, s.Key)
		public, object = join(public, f.publicKey(public, s.Key, isOfObject)), value
	}
	return public
}

// fieldOf returns a field of a value, which may be anything, and whether it exists.
func fieldOf(value any, key string) (any, bool) {
	fields, _ := value.(map[string]any)
	found, exists := fields[key]
	return found, exists
}
