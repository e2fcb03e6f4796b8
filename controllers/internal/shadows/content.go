// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadows

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/dynamicclient"
)

// Limits of a shadow object. They are far higher than the sizes of real pods and EndpointSlices. Decoding 20,000 values
// takes 6 MiB of memory. API servers store objects that would take ten times as much.
var Limits = dynamicclient.Limits{Bytes: 512 << 10, Values: 20_000, MetadataBytes: 64 << 10}

// contentField is the field that has the content of a shadow object. The cache stores it as undecoded text.
const contentField = "spec"

// MaxKeptBytes is the maximum size of an object's content, and of its labels and annotations, in the cache. Larger
// content is not cached, but read when it is needed.
const MaxKeptBytes = 32 << 10

// absentField marks a cached object with content that was dropped from the cache.
const absentField = "refract.io/content-absent"

// Compact drops the content, the labels and the annotations of an object if they are larger than maxBytes each. fields
// are the text fields with the content. The origin label is kept. Compact modifies the object.
func Compact(object *unstructured.Unstructured, maxBytes int, fields ...string) {
	for _, field := range fields {
		if text, ok := object.Object[field].(string); ok && len(text) > maxBytes {
			delete(object.Object, field)
			object.Object[absentField] = true
		}
	}
	metadata, _ := object.Object["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		if entries, ok := metadata[field].(map[string]any); ok && sizeOf(entries) > maxBytes {
			// A hash of the entries is kept, so that changes can be detected.
			kept := map[string]any{absentField: hashOf(entries)}
			if origin, ok := entries[wire.OriginLabel]; ok {
				kept[wire.OriginLabel] = origin
			}
			metadata[field] = kept
			object.Object[absentField] = true
		}
	}
}

func sizeOf(entries map[string]any) (size int) {
	for key, value := range entries {
		text, _ := value.(string)
		size += len(key) + len(text)
	}
	return size
}

func hashOf(entries map[string]any) string {
	hash := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		_, _ = fmt.Fprintf(hash, "%q=%q,", key, entries[key])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// IsCompact reports whether Compact has dropped anything from the object.
func IsCompact(object *unstructured.Unstructured) bool {
	_, absent := object.Object[absentField]
	return absent
}

// LacksMetadata reports whether Compact has dropped labels or annotations from the object.
func LacksMetadata(object *unstructured.Unstructured) bool {
	return object.GetLabels()[absentField] != "" || object.GetAnnotations()[absentField] != ""
}

// Whole returns a copy of a cached object with its content decoded. Content that is not in the cache is read with live.
// Whole returns nil if the object no longer exists, or if another object has taken its name.
func Whole(ctx context.Context, live client.Reader, cached *unstructured.Unstructured, fields ...string) (*unstructured.Unstructured, error) {
	whole := &unstructured.Unstructured{Object: maps.Clone(cached.Object)}
	if IsCompact(cached) {
		whole = &unstructured.Unstructured{}
		whole.SetGroupVersionKind(cached.GroupVersionKind())
		err := live.Get(ctx, client.ObjectKeyFromObject(cached), whole)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("getting %s %s, %w", cached.GetKind(), client.ObjectKeyFromObject(cached), err)
		case err != nil || whole.GetUID() != cached.GetUID():
			return nil, nil //nolint:nilnil // see above
		}
	}
	for _, field := range fields {
		text, ok := whole.Object[field].(string)
		if !ok {
			continue
		}
		value, err := dynamicclient.Value(text)
		if err != nil {
			return nil, fmt.Errorf("decoding %s of %s %s, %w", field, cached.GetKind(), client.ObjectKeyFromObject(cached), err)
		}
		whole.Object[field] = value
	}
	return whole, nil
}

// Whole calls the function Whole with the content field of shadow objects.
func (k Kind) Whole(ctx context.Context, live client.Reader, cached *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return Whole(ctx, live, cached, contentField)
}
