// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// digestField, in an object that is cached without its content, has the hash of the content. It is a json.Number, which
// our decoders never produce, so a field of this name from an API server is recognized as content.
const digestField = "digest"

func digestOf(object *unstructured.Unstructured) (digest uint64, trimmed bool) {
	number, trimmed := object.Object[digestField].(json.Number)
	if trimmed {
		digest, _ = strconv.ParseUint(string(number), 10, 64)
	}
	return digest, trimmed
}

// trimmer returns a function that replaces the content at the path by keep(content) and a hash of all of it. It returns
// nil if keep is nil.
func trimmer(keep func(map[string]any) map[string]any, path []string) informer.Trim {
	if keep == nil {
		return nil
	}
	return func(object *unstructured.Unstructured) {
		if _, done := digestOf(object); done {
			return
		}
		content := raw.Map(raw.Nested(object.Object, path...))
		sum := contentHash(content, len(path) == 0)
		kept := keep(content)
		if len(path) > 0 {
			delete(object.Object, path[0])
		}
		for key := range object.Object {
			if !isOwn(key) {
				delete(object.Object, key)
			}
		}
		if len(kept) > 0 && len(path) > 0 {
			set(object.Object, path, kept)
		} else {
			for key, value := range kept {
				object.Object[key] = value
			}
		}
		object.Object[digestField] = json.Number(strconv.FormatUint(sum, 10))
	}
}

// KeepNothing keeps only the hash of the content. It is a value for Cache.Copies.
func KeepNothing(map[string]any) map[string]any { return nil }

// contentHash returns the sum of the fields' hashes. If the content is at the top of an object, only the fields that
// can cross count. A null field counts as absent.
func contentHash(content map[string]any, top bool) (sum uint64) {
	for key, value := range content {
		if value != nil && !(top && isOwn(key)) {
			sum += FieldHash(key, document.Of(value))
		}
	}
	return sum
}

// contentHash returns the hash of the content of the copy.
func (x *Desired) contentHash(w *Worker) (sum uint64) {
	if payload := x.r.kind.Copy.Payload; payload != "" {
		view := x.View.Field(payload)
		w.keys = view.Keys(w.keys[:0])
		for _, key := range w.keys {
			if field := view.Field(key); field.Kind() != document.Null {
				sum += FieldHash(key, field)
			}
		}
		return sum
	}
	for _, key := range x.payloadKeys(w) {
		if field := x.View.Field(key); field.Kind() != document.Null {
			sum += FieldHash(key, field)
		}
	}
	return sum
}

// trim reduces a response of the provider's API server to the cached part.
func (r *reflector) trim(copied *unstructured.Unstructured) {
	if r.trimCopy != nil {
		r.trimCopy(copied)
	}
}

// whole returns an object of this cluster with its content. If the cache does not have the content, it is read from the
// API server. whole returns nil if the object no longer exists.
func (r *reflector) whole(ctx context.Context, object *unstructured.Unstructured) (found *unstructured.Unstructured, err error) {
	if _, trimmed := digestOf(object); !trimmed {
		return object, nil
	}
	err = r.m.callLocal(ctx, func(ctx context.Context) (err error) {
		found, err = r.m.local.Resource(r.kind.Source).Namespace(object.GetNamespace()).Get(ctx, object.GetName(), metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) || err == nil && found.GetUID() != object.GetUID() {
		return nil, nil // the watch will report it
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s/%s, %w", r.kind.SourceKind().Kind, object.GetNamespace(), object.GetName(), err)
	}
	return found, nil
}

// wholeCopy returns a copy with its content. If the cache does not have the content, it is read from the provider. A
// copy that differs from the cached one means that the cache is behind: see replaced.
func (r *reflector) wholeCopy(ctx context.Context, s *Scope, copied *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if _, trimmed := digestOf(copied); !trimmed {
		return copied, nil
	}
	found, err := r.read(ctx, s, copied.GetName())
	if err != nil {
		return nil, err
	}
	if found == nil || found.GetUID() != copied.GetUID() {
		return nil, r.replaced(s, s.Key(r.localName(copied.GetName())), copied, found)
	}
	return found, nil
}
