// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// item is one state of an object in the index. It is unpacked while it is in use, and packed otherwise. Each state of
// an object is a new item. An item is safe for concurrent use.
type item struct {
	cache.ObjectName
	// indexed contains the values of the object in each index. They are stored because the indexer needs them when it
	// removes the item.
	indexed map[string][]string
	object  atomic.Pointer[unstructured.Unstructured]
	packed  atomic.Pointer[packed] // set before object becomes nil
	used    atomic.Uint32          // value of Informer.round when the object was last used
}

func newItem(object *unstructured.Unstructured, indexers cache.Indexers, round uint32) (*item, error) {
	i := &item{ObjectName: raw.Key(object)}
	for name, index := range indexers {
		values, err := index(object)
		if err != nil {
			return nil, fmt.Errorf("index %s of %s, %w", name, i, err)
		}
		if i.indexed == nil {
			i.indexed = make(map[string][]string, len(indexers))
		}
		i.indexed[name] = values
	}
	i.object.Store(object)
	i.used.Store(round)
	return i, nil
}

// indexOf returns an index function with the values that newItem has computed.
func indexOf(name string) cache.IndexFunc {
	return func(kept any) ([]string, error) {
		if i, ok := kept.(*item); ok {
			return i.indexed[name], nil
		}
		return nil, fmt.Errorf("%T is not kept here", kept)
	}
}

// useObject returns the object, and keeps it unpacked for some time.
func (i *item) useObject(round uint32) *unstructured.Unstructured {
	i.used.Store(round)
	if object := i.object.Load(); object != nil {
		return object
	}
	object := i.unpackObject()
	i.object.Store(object)
	return object
}

// peekObject returns the object. A packed object stays packed.
func (i *item) peekObject() *unstructured.Unstructured {
	if object := i.object.Load(); object != nil {
		return object
	}
	return i.unpackObject()
}

func (i *item) unpackObject() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: i.packed.Load().unpackContent()}
}

func (i *item) packObject(s *Strings, private bool) {
	object := i.object.Load()
	if object == nil {
		return
	}
	if i.packed.Load() == nil {
		packed := s.packContent(object.Object, private)
		if packed == nil {
			return
		}
		i.packed.Store(packed)
	}
	i.object.Store(nil)
}

func objectsOf(items []any) []*unstructured.Unstructured {
	objects := make([]*unstructured.Unstructured, 0, len(items))
	for _, kept := range items {
		if kept, ok := kept.(*item); ok {
			objects = append(objects, kept.peekObject())
		}
	}
	return objects
}

func itemKey(kept any) (string, error) {
	if i, ok := kept.(*item); ok {
		return i.String(), nil
	}
	return "", fmt.Errorf("%T is not kept here", kept)
}
