// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// Peek returns the same object as Get, but a packed object stays packed. A loop over all objects thus does not unpack
// the whole cache.
func (i *Informer) Peek(key cache.ObjectName) *unstructured.Unstructured { return i.peekObject(key) }

// KeysIn returns the keys of the objects in a namespace, in any order.
func (i *Informer) KeysIn(namespace string) []cache.ObjectName {
	texts, err := i.indexer.ListKeys(), error(nil)
	if i.namespace == "" {
		texts, err = i.indexer.IndexKeys(cache.NamespaceIndex, namespace)
	}
	if err != nil {
		return nil
	}
	keys := make([]cache.ObjectName, 0, len(texts))
	for _, text := range texts {
		if key, err := cache.ParseObjectName(text); err == nil {
			keys = append(keys, key)
		}
	}
	return keys
}
