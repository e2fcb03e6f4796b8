// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// undeclared matches unknown fields in the error of a server-side apply. Other writes do not fail because of them.
// Brackets contain the key, value or index of an item of a list.
var undeclared = regexp.MustCompile(`((?:\.[A-Za-z0-9_-]+(?:\[[^\]]*\])*)+): field not declared in schema`)

// items matches the selector of a list item in a path.
var items = regexp.MustCompile(`\[[^\]]*\]`)

// withoutUndeclared returns an object without the fields that the API server does not know, according to its error. It
// returns nil for other errors. In lists, a field is removed from all items.
func withoutUndeclared(object *unstructured.Unstructured, err error) *unstructured.Unstructured {
	if err == nil {
		return nil
	}
	var rest *unstructured.Unstructured
	for _, match := range undeclared.FindAllStringSubmatch(err.Error(), -1) {
		path := strings.Split(strings.TrimPrefix(items.ReplaceAllString(match[1], ""), "."), ".")
		if isOwn(path[0]) {
			continue
		}
		if rest == nil {
			rest = object.DeepCopy() // the object shares with the cache
		}
		removeField(rest.Object, path)
	}
	return rest
}

// removeField removes a field of a value. In lists, it removes the field from all items.
func removeField(value any, path []string) {
	switch value := value.(type) {
	case map[string]any:
		if len(path) == 1 {
			delete(value, path[0])
			return
		}
		removeField(value[path[0]], path[1:])
	case []any:
		for _, item := range value {
			removeField(item, path)
		}
	}
}
