// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Fence is the state of the API server at one moment. An informer, whose watch may lag behind, has passed the fence
// when it contains this state or a later one. A Fence must not be used concurrently.
type Fence struct {
	informer *Informer
	// pending contains the objects whose state at the fence is not in the informer yet, with their versions. The
	// version "" means that the object was deleted.
	pending map[cache.ObjectName]string
}

// Fence returns a Fence for the state of the API server at the first call of Behind.
func (i *Informer) Fence() *Fence { return &Fence{informer: i} }

// Behind lists the objects from the API server. It returns the name of an object that is older in the informer than at
// the fence, or whose creation or deletion is not in the informer. If there is no such object, it returns "", and also
// in all later calls. It uses a list because, unlike a watch, a list is up to date. It transfers only metadata. Changes
// after the first call are ignored. Otherwise the informer of a busy API server would never pass the fence.
func (f *Fence) Behind(ctx context.Context) (object string, err error) {
	list, err := f.informer.stored(ctx)
	if err != nil {
		return "", fmt.Errorf("listing %s, %w", f.informer.resource.Resource, err)
	}
	stored := make(map[cache.ObjectName]string, len(list.Items))
	for n := range list.Items {
		item := &list.Items[n]
		stored[cache.ObjectName{Namespace: item.Namespace, Name: item.Name}] = item.ResourceVersion
	}
	if f.pending == nil {
		f.pending = maps.Clone(stored)
		for _, shown := range f.informer.All() {
			if name := raw.Key(shown); stored[name] == "" {
				f.pending[name] = ""
			}
		}
	}
	for name, version := range f.pending {
		if f.showsVersion(name, cmp.Or(version, stored[name]), stored[name] != "", list.ResourceVersion) {
			delete(f.pending, name)
		} else {
			object = name.String()
		}
	}
	return object, nil
}

// showsVersion reports whether the informer contains this version of an object or a later one. If the API server does
// not store the object any more, it reports whether the informer no longer contains the old state.
func (f *Fence) showsVersion(name cache.ObjectName, version string, isStored bool, now string) bool {
	shown := f.informer.peekObject(name)
	if isStored {
		return shown != nil && hasReached(shown, version)
	}
	return shown == nil || hasReached(shown, now)
}

// peekObject returns the same object as Get, but does not unpack it permanently.
func (i *Informer) peekObject(name cache.ObjectName) *unstructured.Unstructured {
	found, _, _ := i.indexer.GetByKey(name.String())
	if kept, ok := found.(*item); ok {
		return kept.peekObject()
	}
	return nil
}

// hasReached reports whether an object has the given version or a later one. The versions of a resource are ordered.
func hasReached(object *unstructured.Unstructured, version string) bool {
	own := object.GetResourceVersion()
	if own == version {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(own, version)
	return err == nil && order >= 0
}

// metadataLister returns a function that lists the metadata of the selected objects. It reads from the API server's
// storage, not from the API server's cache.
func (s *Source) metadataLister(resource schema.GroupVersionResource, selected Selection) func(context.Context) (*metav1.PartialObjectMetadataList, error) {
	return func(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
		return breaker.Do(ctx, s.Breaker, func() (*metav1.PartialObjectMetadataList, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			return s.Metadata.Resource(resource).Namespace(selected.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selected.Labels, FieldSelector: selected.Fields})
		})
	}
}
