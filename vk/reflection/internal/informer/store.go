// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// store is an Informer in its role as the cache.ReflectorStore that client-go's reflector fills.
type store Informer

var _ cache.TransformingStore = (*store)(nil)

func (s *store) asInformer() *Informer { return (*Informer)(s) }

// Transformer implements cache.TransformingStore. It trims the objects of a streamed first list when they arrive.
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if u, ok := object.(*unstructured.Unstructured); ok {
			s.trimObject(u)
		}
		return object, nil
	}
}

func (s *store) trimObject(object *unstructured.Unstructured) {
	DropManagedFields(object)
	if s.trim != nil {
		s.trim(object)
	}
}

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error {
	s.delivering.Lock()
	defer s.delivering.Unlock()
	return s.putObject(object, false)
}

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error { return s.Add(object) }

// putObject stores an object and calls the handlers. If listed is true, an unchanged object is skipped.
func (s *store) putObject(object any, listed bool) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	before := s.asInformer().Get(u.GetNamespace(), u.GetName())
	if listed && before != nil && before.GetUID() == u.GetUID() && before.GetResourceVersion() == u.GetResourceVersion() {
		return nil
	}
	s.trimObject(u)
	kept, err := newItem(u, s.indexes, s.round.Load())
	if err == nil {
		err = s.indexer.Update(kept)
	}
	if err != nil {
		return err
	}
	s.asInformer().callHandlers(before, u, false)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(object any) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	s.delivering.Lock()
	defer s.delivering.Unlock()
	s.trimObject(u)
	if err := s.removeObject(u); err != nil {
		return err
	}
	s.asInformer().callHandlers(nil, u, true)
	return nil
}

func (s *store) removeObject(object *unstructured.Unstructured) error {
	return s.indexer.Delete(&item{ObjectName: raw.Key(object)})
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(list []any, _ string) error {
	s.delivering.Lock()
	defer s.delivering.Unlock()
	there := make(map[cache.ObjectName]bool, len(list))
	for _, object := range list {
		if u, ok := object.(*unstructured.Unstructured); ok {
			there[raw.Key(u)] = true
		}
		if err := s.putObject(object, true); err != nil {
			return err
		}
	}
	for _, known := range s.asInformer().All() {
		if there[raw.Key(known)] {
			continue
		}
		if err := s.removeObject(known); err != nil {
			return err
		}
		s.asInformer().callHandlers(nil, known, true)
	}
	s.once.Do(func() { close(s.synced) })
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing, because resyncs are started with Informer.Resync, which does
// not need a goroutine for each informer.
func (s *store) Resync() error { return nil }

// callHandlers calls the handlers. i.delivering must be locked.
func (i *Informer) callHandlers(before, object *unstructured.Unstructured, deleted bool) {
	for _, f := range i.handlers {
		(*f)(before, object, deleted)
	}
}

// DropManagedFields removes the managedFields, because they are not used.
func DropManagedFields(object *unstructured.Unstructured) {
	if object == nil {
		return
	}
	if metadata, ok := object.Object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
	}
}

// DropSpec is a Trim that removes the spec.
func DropSpec(object *unstructured.Unstructured) { delete(object.Object, "spec") }
