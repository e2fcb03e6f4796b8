// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/content"
)

// undeclared matches unknown fields in the error of a server-side apply. Only server-side apply fails because of
// unknown fields. Brackets contain the key, value or index of a list item.
var undeclared = regexp.MustCompile(`((?:\.[A-Za-z0-9_-]+(?:\[[^\]]*\])*)+): field not declared in schema`)

// items matches the selector of a list item in a path.
var items = regexp.MustCompile(`\[[^\]]*\]`)

// withoutUndeclared returns an object without the fields that are unknown to the API server according to err. For any
// other error, it returns nil. If a field in a list item is unknown, it is removed from all items.
func withoutUndeclared(object *unstructured.Unstructured, err error) *unstructured.Unstructured {
	if err == nil {
		return nil
	}
	var rest *unstructured.Unstructured
	for _, match := range undeclared.FindAllStringSubmatch(err.Error(), -1) {
		path := strings.Split(strings.TrimPrefix(items.ReplaceAllString(match[1], ""), "."), ".")
		if content.IsOwn(path[0]) {
			continue
		}
		if rest == nil {
			rest = object.DeepCopy() // a deep copy, because object shares memory with the cache
		}
		content.RemoveField(rest.Object, path)
	}
	return rest
}
