// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package memo keeps state about objects in memory, from one reconciliation to the next.
package memo

import (
	"iter"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Memo holds one value for each object. The zero value is empty and ready for use. A Memo is safe for concurrent use. A
// caller that sets a value for an object must drop it when the object is deleted.
type Memo[V any] struct {
	values sync.Map
}

// Get returns the value of key and whether it exists.
func (m *Memo[V]) Get(key types.NamespacedName) (V, bool) {
	stored, ok := m.values.Load(key)
	if !ok {
		var none V
		return none, false
	}
	return stored.(V), true
}

// Set stores v for key.
func (m *Memo[V]) Set(key types.NamespacedName, v V) { m.values.Store(key, v) }

// Drop deletes the value of key.
func (m *Memo[V]) Drop(key types.NamespacedName) { m.values.Delete(key) }

// Keys iterates over the objects that have a value.
func (m *Memo[V]) Keys() iter.Seq[types.NamespacedName] {
	return func(yield func(types.NamespacedName) bool) {
		m.values.Range(func(key, _ any) bool { return yield(key.(types.NamespacedName)) })
	}
}
