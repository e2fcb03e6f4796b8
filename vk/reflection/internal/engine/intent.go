// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// cause returns the hash of all inputs of the copy: the object without bookkeeping, the context of its handler, and the
// settings for its kind.
func (x *Desired) cause() uint64 {
	s := x.r.m.settings.Load()
	sum := intentHash(x.local) + FieldHash("patch", document.Of(s.patch)) + FieldHash(s.loadBalancerClass, document.Of(s.ingressClass)) +
		FieldHash("storageClass", document.Of(s.storageClass))
	if x.r.kind.Follows.Network {
		sum += FieldHash("nodes", document.Of(s.virtualNodes))
	}
	if x.r.kind.Follows.Namespaces {
		sum += FieldHash("namespaces", document.Of(x.r.m.remoteNamespaces()))
	}
	if field, value := x.r.handler.Context(x.scope, x.local); len(value) > 0 {
		sum += FieldHash(field, document.Of(value))
	}
	return sum
}

// intentHash returns the hash of the labels, annotations and reflected fields of an object, without the labels and
// annotations that Refract writes. These follow from the copy, and would make each round of a fight look like a new
// request.
func intentHash(local *unstructured.Unstructured) uint64 {
	return metadataHash(WithoutBookkeeping(raw.Labels(local.Object)), WithoutBookkeeping(raw.Annotations(local.Object))) + fieldsHash(local, nil)
}

// WithoutBookkeeping returns labels or annotations without the entries that Refract writes, or the map itself if it has
// none.
func WithoutBookkeeping(entries map[string]any) map[string]any {
	for _, key := range wire.Bookkeeping() {
		if _, has := entries[key]; !has {
			continue
		}
		entries = maps.Clone(entries)
		maps.DeleteFunc(entries, func(key string, _ any) bool { return wire.IsBookkeeping(key) })
		break
	}
	if len(entries) == 0 {
		return nil
	}
	return entries
}
