// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/vk/namespaces"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
)

// Reader reads cached state of both clusters. Safe for concurrent use.
type Reader struct{ r *reflector }

// Scope returns the scope of this kind in an offloaded namespace, or nil.
func (e Reader) Scope(namespace string) *Scope {
	if t := e.r.m.extension(namespace); t != nil {
		return t.of(e.r.kind.Name)
	}
	return nil
}

// Scopes returns the scopes of this kind in all offloaded namespaces.
func (e Reader) Scopes() (all []*Scope) {
	for _, t := range e.r.m.allExtensions() {
		if s := t.of(e.r.kind.Name); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// IsReflected reports whether a kind is reflected, by this or another virtual kubelet of the provider.
func (e Reader) IsReflected(kind string) bool { return e.r.m.reflector(kind) != nil }

// IsExtended reports whether objects of a namespace are reflected.
func (e Reader) IsExtended(namespace string) bool { return e.r.m.extension(namespace) != nil }

// NamespaceState returns the state of a namespace in the NamespaceMap, and reports whether the NamespaceMap has been
// read.
func (e Reader) NamespaceState(namespace string) (state namespaces.State, known bool) {
	return e.r.m.mapper.State(namespace), e.r.m.mapper.Synced()
}

// MapNames reads the NamespaceMap from the API server and reports whether it names a namespace, or may do so.
func (e Reader) MapNames(ctx context.Context, namespace string) (bool, error) {
	return e.r.m.mapper.Names(ctx, namespace)
}

// OfNode returns the objects of this node, for kinds with PerNode, or nil before they have been read.
func (e Reader) OfNode() []*unstructured.Unstructured {
	if !e.r.ofNode.HasSynced() {
		return nil
	}
	return e.r.ofNode.All()
}

// ObjectOfNode returns an object of this node, at least as new as our last write to it, or nil.
func (e Reader) ObjectOfNode(key Key) *unstructured.Unstructured {
	object, _ := e.r.localWrites.View(key, e.r.ofNode.Get(key.Namespace, key.Name))
	return object
}

// Node returns the Node of this virtual kubelet as it is cached, or nil.
func (e Reader) Node() *unstructured.Unstructured {
	return e.r.m.nodes.Get("", e.r.m.options.NodeName)
}

// ClusterOf returns the cluster id that a virtual node represents, or "" if the node is not a virtual node.
func (e Reader) ClusterOf(node string) string {
	id, _ := e.r.m.settings.Load().virtualNodes[node].(string)
	return id
}

// IsLeading reports whether this virtual kubelet reflects the kinds that belong to the provider rather than to a node.
func (e Reader) IsLeading() bool { return e.r.m.leading.Load() }

// Epoch returns a number that changes whenever the desired copy of an object may change although the object does not:
// because of a plugin chain, a setting, or the mapping of addresses.
func (e Reader) Epoch() uint64 { return e.r.m.changes.Load() + e.r.swaps.Load() }

// WaitForShared waits for the caches that every evaluation of the kind needs, and reports whether they are filled.
func (e Reader) WaitForShared(ctx context.Context) bool {
	return cache.WaitFor(ctx, "", e.r.m.sharedCaches(e.r.kind)...)
}

// WatchLocal watches further objects of this cluster, and makes every scope of the kind wait until f has been called
// for the existing ones. It may be called only while New creates the handler.
func (e Reader) WatchLocal(resource schema.GroupVersionResource, o informer.Options, f informer.EventFunc) *informer.Informer {
	made := e.r.m.here.New(resource, o)
	made.OnEvent(f)
	e.r.informers = append(e.r.informers, made)
	return made
}
