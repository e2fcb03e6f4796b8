// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package content

import (
	"encoding/json"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// digestField is the field with the hash of the content in an object that is cached without its content. The value is a
// json.Number. The decoders used here never produce this type, so a field with this name in an object from an API
// server is recognized as content.
const digestField = "digest"

// DigestOf returns the hash of the content of an object that is cached without its content. For other objects, trimmed
// is false.
func DigestOf(object *unstructured.Unstructured) (digest uint64, trimmed bool) {
	number, trimmed := object.Object[digestField].(json.Number)
	if trimmed {
		digest, _ = strconv.ParseUint(string(number), 10, 64)
	}
	return digest, trimmed
}

// Trimmer returns a function that replaces the content at the path with keep(content) and a hash of the whole content.
// It returns nil if keep is nil.
func Trimmer(keep func(map[string]any) map[string]any, path []string) informer.Trim {
	if keep == nil {
		return nil
	}
	return func(object *unstructured.Unstructured) {
		if _, done := DigestOf(object); done {
			return
		}
		content := raw.Map(raw.Nested(object.Object, path...))
		sum := contentHash(content, len(path) == 0)
		kept := keep(content)
		if len(path) > 0 {
			delete(object.Object, path[0])
		}
		for key := range object.Object {
			if !IsOwn(key) {
				delete(object.Object, key)
			}
		}
		if len(kept) > 0 && len(path) > 0 {
			Set(object.Object, path, kept)
		} else {
			for key, value := range kept {
				object.Object[key] = value
			}
		}
		object.Object[digestField] = json.Number(strconv.FormatUint(sum, 10))
	}
}

// KeepNothing is used for Cache.Copies to cache only the hash of the content.
func KeepNothing(map[string]any) map[string]any { return nil }
