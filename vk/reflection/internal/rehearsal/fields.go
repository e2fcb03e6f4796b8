// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rehearsal

import (
	"reflect"
	"strings"
	"sync"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/refract-project/refract/host/document"
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

// publicKey returns a key that may be shown in a report. Reports contain no values of objects, but a plugin can make a key
// of a value. So a key that is neither in the current result nor a field of Kubernetes is replaced by anyKey.
func publicKey(key string, isCurrent bool) string {
	if isCurrent || fieldNames()[key] {
		return key
	}
	return anyKey
}

// publicPath returns a path that may be shown in a report. current is the current result for the object, or nil.
func publicPath(path string, current any) string {
	segments, err := document.ParsePath(path)
	if err != nil {
		return "[" + anyKey + "]"
	}
	public := ""
	for _, s := range segments {
		fields, _ := current.(map[string]any)
		value, isCurrent := fields[s.Key]
		if list, isList := current.([]any); isList || index.MatchString(s.Key) {
			public += "[]"
			current = nil
			if len(list) > 0 {
				current = list[0]
			}
			continue
		}
		public, current = join(public, publicKey(s.Key, isCurrent)), value
	}
	return public
}
