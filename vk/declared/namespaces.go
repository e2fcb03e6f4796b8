// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// Namespaces provides the labels of the namespaces of this cluster. It reads them as soon as a plugin selects by them.
// It is safe for concurrent use.
type Namespaces struct {
	client metadata.Interface
	known  sync.Map // values are of type *namespaceLabels; keyed by the name of the namespace

	mu          sync.Mutex
	stop        context.CancelFunc
	ended       sync.WaitGroup
	informer    cache.SharedIndexInformer // nil before watch is called
	subscribers []func(namespace string)

	selectors atomic.Pointer[[]labels.Selector] // selectors in use
	lastError atomic.Pointer[string]            // last error of the watch; nil after a success
}

// namespaceLabels contains the labels of a namespace at one point in time. They are never modified.
type namespaceLabels struct{ set labels.Set }

func newNamespaces(client metadata.Interface) *Namespaces { return &Namespaces{client: client} }

// Subscribe registers f, which is called with the name of each namespace whose labels become known, or change so that a
// plugin selects differently. f must not block. It is also called for namespaces that are already known.
func (n *Namespaces) Subscribe(f func(namespace string)) {
	n.mu.Lock()
	n.subscribers = append(n.subscribers, f)
	n.mu.Unlock()
	n.known.Range(func(name, _ any) bool { f(name.(string)); return true })
}

// watch starts the watch unless it is running. It waits until all namespaces are known, but not longer than limit.
func (n *Namespaces) watch(ctx context.Context, limit time.Duration) {
	n.mu.Lock()
	if n.informer == nil {
		n.start()
	}
	informer := n.informer
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
}

// start starts the watch. The caller holds mu.
func (n *Namespaces) start() {
	n.informer = metadatainformer.NewFilteredMetadataInformer(n.client, namespaceResource, "", 0, cache.Indexers{}, nil).Informer()
	_ = n.informer.SetTransform(keepLabels) // this cannot fail, because the informer was not started yet
	_ = n.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		text := err.Error()
		n.lastError.Store(&text)
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	_, _ = n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // this cannot fail, because the informer was not stopped
		AddFunc: n.learn, UpdateFunc: func(_, object any) { n.learn(object) }, DeleteFunc: n.forget,
	})
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	n.ended.Go(func() { n.informer.RunWithContext(ctx) })
}

// keepLabels is the transform function of the informer. It keeps only names and labels.
func keepLabels(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		return &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: m.Labels,
		}}, nil
	}
	return object, nil
}

// learn stores the labels of a namespace.
func (n *Namespaces) learn(object any) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	n.lastError.Store(nil)
	before := n.lookup(m.Name)
	if before != nil && maps.Equal(before.set, m.Labels) {
		return
	}
	n.known.Store(m.Name, &namespaceLabels{m.Labels})
	if before != nil && !n.isSelectionChanged(before.set, m.Labels) {
		return
	}
	n.mu.Lock()
	subscribers := n.subscribers
	n.mu.Unlock()
	for _, f := range subscribers {
		f(m.Name)
	}
}

// isSelectionChanged reports whether the result of a selector in use differs between the labels.
func (n *Namespaces) isSelectionChanged(before, now labels.Set) bool {
	used := n.selectors.Load()
	return used != nil && slices.ContainsFunc(*used, func(s labels.Selector) bool { return s.Matches(before) != s.Matches(now) })
}

// forget removes the labels of a namespace that was deleted, because a new namespace with the same name may have other
// labels.
func (n *Namespaces) forget(object any) {
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		n.known.Delete(name)
	}
}

// lookup returns the labels of a namespace, or nil if they are not known.
func (n *Namespaces) lookup(name string) *namespaceLabels {
	known, ok := n.known.Load(name)
	if !ok {
		return nil
	}
	return known.(*namespaceLabels)
}

// obstacle returns the reason why labels are not known, as the end of a sentence, or "" if the watch has no error.
func (n *Namespaces) obstacle() string {
	if text := n.lastError.Load(); text != nil {
		return ", because namespaces cannot be watched (" + *text + "): check the ClusterRole of virtual kubelets"
	}
	return ""
}

// close ends the watch.
func (n *Namespaces) close() {
	n.mu.Lock()
	stop := n.stop
	n.mu.Unlock()
	if stop != nil {
		stop()
		n.ended.Wait()
	}
}
