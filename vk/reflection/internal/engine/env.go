// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	v1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/vk/namespaces"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
)

// Env is the engine's API for the Handler of one kind. Safe for concurrent use.
type Env struct{ r *reflector }

// Kind returns the reflected kind; it must not be modified.
func (e *Env) Kind() *Kind { return &e.r.kind }

// Options returns those of the Manager; they must not be modified.
func (e *Env) Options() *Options { return &e.r.m.options }

// Clock returns the time.
func (e *Env) Clock() clock.WithTicker { return e.r.m.options.Clock }

// Log is for what is not reported on an object.
func (e *Env) Log() *slog.Logger { return e.r.m.log }

// Local returns the client of this cluster. Use it within CallLocal.
func (e *Env) Local() dynamic.Interface { return e.r.m.local }

// Core returns the core API client of this cluster. Use it within CallLocal.
func (e *Env) Core() v1.CoreV1Interface { return e.r.m.core }

// Remote returns the client of the provider. Use it within CallRemote.
func (e *Env) Remote() dynamic.Interface { return e.r.m.remote }

// Reachable returns an error while the provider is unreachable.
func (e *Env) Reachable() error { return e.r.m.breaker.Allow() }

// ListWatchRemote lists and watches objects of the provider, except while it is unreachable.
func (e *Env) ListWatchRemote(s informer.Selection) cache.ListerWatcher {
	return e.r.m.there.ListWatch(e.r.kind.Source, s)
}

// WaitForShared waits for the caches on which every evaluation of the kind depends, and reports whether they are there.
func (e *Env) WaitForShared(ctx context.Context) bool {
	return cache.WaitFor(ctx, "", e.r.m.sharedCaches(e.r.kind)...)
}

// IsLeading reports whether this virtual kubelet reflects what belongs to the provider rather than to a node.
func (e *Env) IsLeading() bool { return e.r.m.leading.Load() }

// Scope returns that of this kind in an offloaded namespace, or nil.
func (e *Env) Scope(namespace string) *Scope {
	if t := e.r.m.extension(namespace); t != nil {
		return t.of(e.r.kind.Name)
	}
	return nil
}

// Scopes returns those of this kind in all offloaded namespaces.
func (e *Env) Scopes() (all []*Scope) {
	for _, t := range e.r.m.allExtensions() {
		if s := t.of(e.r.kind.Name); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// IsExtended reports whether objects of a namespace are reflected.
func (e *Env) IsExtended(namespace string) bool { return e.r.m.extension(namespace) != nil }

// NamespaceState returns the state of a namespace in the NamespaceMap, and whether that has been read.
func (e *Env) NamespaceState(namespace string) (state namespaces.State, known bool) {
	return e.r.m.mapper.State(namespace), e.r.m.mapper.Synced()
}

// MapNames asks the API server whether the NamespaceMap names a namespace, or may do so.
func (e *Env) MapNames(ctx context.Context, namespace string) (bool, error) {
	return e.r.m.mapper.Names(ctx, namespace)
}

// OfNode returns the objects of this node, of kinds that are PerNode, or nil before they have been read.
func (e *Env) OfNode() []*unstructured.Unstructured {
	if !e.r.ofNode.HasSynced() {
		return nil
	}
	return e.r.ofNode.All()
}

// ObjectOfNode returns an object of this node, at least as new as our last write to it, or nil.
func (e *Env) ObjectOfNode(key Key) *unstructured.Unstructured {
	object, _ := e.r.localWrites.View(key, e.r.ofNode.Get(key.Namespace, key.Name))
	return object
}

// ClusterOf returns the id of the cluster of a virtual node, "" for none.
func (e *Env) ClusterOf(node string) string {
	id, _ := e.r.m.settings.Load().virtualNodes[node].(string)
	return id
}

// Ownership returns the labels by which copies are known.
func (e *Env) Ownership() map[string]string { return e.r.m.options.ownership(e.r.kind) }

// Managed reports whether an object has the labels of objects created by this virtual kubelet.
func (e *Env) Managed(object *unstructured.Unstructured) bool { return e.r.managed(object) }

// RemoteName is the name of the copy of an object.
func (e *Env) RemoteName(local string) string { return e.r.remoteName(local) }

// Enqueue adds an object to the queue, whether or not its scope is ready.
func (e *Env) Enqueue(key Key) { e.r.queue.Add(key) }

// EnqueueAfter adds an object to the queue later.
func (e *Env) EnqueueAfter(key Key, after time.Duration) { e.r.queue.AddAfter(key, after) }

// EnqueueAll adds every object of every scope that is ready to the queue.
func (e *Env) EnqueueAll() { e.r.enqueueAll() }

// Tries counts the failures of an object since the last success.
func (e *Env) Tries(key Key) int { return e.r.queue.NumRequeues(key) }

// EvaluatedOthers counts the evaluations of all other kinds.
func (e *Env) EvaluatedOthers() uint64 { return e.r.m.evaluated.Load() - e.r.evaluated.Load() }

// QueueLen counts the objects that are enqueued.
func (e *Env) QueueLen() int { return e.r.queue.Len() }

// Mutate runs the chain of the hook on an object; the result is in the worker's document.
func (e *Env) Mutate(ctx context.Context, w *Worker, hook host.Hook, namespace string, object, root map[string]any) (*host.Outcome, error) {
	return e.r.mutate(ctx, w, hook, namespace, object, root)
}

// Warnings reports the warnings of plugins in Events about an object of this cluster.
func (e *Env) Warnings(w *Worker, object *unstructured.Unstructured, outcome *host.Outcome) {
	e.r.warnings(w, object, outcome)
}

// CheckAnnotations warns about annotations without effect because their name is misspelt.
func (e *Env) CheckAnnotations(w *Worker, object *unstructured.Unstructured) { e.r.misspelt(w, object) }

// Desired reads what the copy of an object should be from the worker's document. A plugin's result that cannot be an object
// is an *OutputError.
func (e *Env) Desired(w *Worker, s *Scope, local *unstructured.Unstructured) (*Desired, error) {
	return e.r.desired(w, s, local)
}

// Converge updates the copy to the worker's document.
func (e *Env) Converge(ctx context.Context, w *Worker, s *Scope, local, remote *unstructured.Unstructured) error {
	return e.r.converge(ctx, w, s, local, remote)
}

// Write updates the copy to the desired state; remote is the present one, or nil.
func (e *Env) Write(ctx context.Context, w *Worker, x *Desired, remote *unstructured.Unstructured) error {
	return e.r.write(ctx, w, x, remote)
}

// Create makes the copy where none of ours is known. An existing object of that name is never overwritten.
func (e *Env) Create(ctx context.Context, w *Worker, x *Desired) error { return e.r.create(ctx, w, x) }

// Update sends object, unless the API server has shown that it changes nothing, or another client keeps reverting it.
func (e *Env) Update(ctx context.Context, w *Worker, x *Desired, remote, object *unstructured.Unstructured) error {
	return e.r.update(ctx, w, x, remote, object)
}

// Remove deletes our copy, with its uid as a precondition; nil is a no-op.
func (e *Env) Remove(ctx context.Context, w *Worker, s *Scope, remote *unstructured.Unstructured) error {
	return e.r.remove(ctx, w, s, remote)
}

// MustBeFree asks the provider itself whether the name of a copy is free: a foreign object is a *ForeignError, and one of ours
// that the watch has not shown is enqueued again.
func (e *Env) MustBeFree(ctx context.Context, s *Scope, key Key) error {
	return e.r.mustBeFree(ctx, s, key)
}

// WholeCopy returns a copy with all of its content, read from the provider when that is not kept; see Kind.Keep. When it is not the
// same any more, the error has the object enqueued again.
func (e *Env) WholeCopy(ctx context.Context, s *Scope, copied *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return e.r.wholeCopy(ctx, s, copied)
}

// IncomingStatus runs the incoming chain on the copy; nil when a plugin skips it or there is nothing yet.
func (e *Env) IncomingStatus(ctx context.Context, w *Worker, s *Scope, local, remote *unstructured.Unstructured) (map[string]any, error) {
	return e.r.backStatus(ctx, w, s, local, remote)
}

// PutStatus writes the status of an object of this cluster.
func (e *Env) PutStatus(ctx context.Context, w *Worker, local *unstructured.Unstructured, status map[string]any) error {
	return e.r.putStatus(ctx, w, local, status, nil)
}

// PatchLocal patches an object of this cluster if it is still the same one; nil without an error when it is gone.
func (e *Env) PatchLocal(ctx context.Context, local *unstructured.Unstructured, patch jsonpatch.Patch, subresources ...string) (*unstructured.Unstructured, error) {
	return e.r.patchLocal(ctx, local, patch, subresources...)
}

// CallLocal makes one call to this cluster, with a deadline.
func (e *Env) CallLocal(ctx context.Context, call func(context.Context) error) error {
	return e.r.m.callLocal(ctx, call)
}

// CallRemote makes one call to the provider, with a deadline. It fails at once while the provider is unreachable.
func (e *Env) CallRemote(ctx context.Context, call func(context.Context) error) error {
	return e.r.m.callRemote(ctx, call)
}

// Counted counts a write for the metrics; cluster is "local" or "remote".
func (e *Env) Counted(verb, cluster string) { e.r.counted(verb, cluster) }

// Pace returns how long to wait until the status of an object may be written again.
func (e *Env) Pace(key Key) time.Duration { return e.r.paces.wait(key, e.Clock().Now()) }

// Forget drops the state of a deleted object.
func (e *Env) Forget(key Key) { e.r.forget(key) }

// Forget drops the state of a deleted object, and of its copy.
func (s *Scope) Forget(key Key) { s.forget(key) }

// Accepted reports whether the API server is known to make status of what was asked, and Accept says so.
func (e *Env) Accepted(key Key, asked, status uint64) bool {
	return e.r.statuses.Accepted(key, asked, status)
}

// Accept remembers the normalized form of a status.
func (e *Env) Accept(key Key, asked, status uint64) { e.r.statuses.Accept(key, asked, status) }

// Epoch changes whenever something else than an object may change what its copy should be: a plugin chain, a setting, how
// addresses are mapped.
func (e *Env) Epoch() uint64 { return e.r.m.changes.Load() + e.r.swaps.Load() }

// Failed reports an error of an object and plans the next try, beside the result of Reconcile.
func (e *Env) Failed(key Key, err error) { e.r.failed(key, err) }

// Warn writes an Event of type Warning about an object of this cluster.
func (e *Env) Warn(object *unstructured.Unstructured, reason, message string) {
	e.r.m.events.Warn(e.r.kind.Name, object, reason, message)
}

// Note writes an Event of type Normal.
func (e *Env) Note(object *unstructured.Unstructured, reason, message string) {
	e.r.m.events.Note(e.r.kind.Name, object, reason, message)
}

// OK resets the reports about an object: its problem is over, and is reported again if it recurs.
func (e *Env) OK(uid types.UID) { e.r.m.events.OK(e.r.kind.Name, uid) }

// EventDropped counts an Event that is not written because there are too many.
func (e *Env) EventDropped() { e.r.m.metrics.eventsDropped.Inc() }

// MayCross reports whether the policy lets an object cross, or cannot decide.
func (s *Scope) MayCross(object *unstructured.Unstructured) bool {
	decided, err := s.r.handler.Decide(s, object)
	return err != nil || decided.Cross
}

// IsStrange reports whether an address cannot belong to the provider; known are its ranges, empty for any.
func (e *Env) IsStrange(address string, known ipmap.Ranges) bool {
	return e.r.m.strange(address, known)
}

// WarnOfStrange warns about addresses that are not shown.
func (e *Env) WarnOfStrange(w *Worker, object *unstructured.Unstructured, addresses []string) {
	w.Warned = true
	e.Warn(object, StrangeAddressReason, e.r.m.strangeNote(addresses))
}

// Patch sends a patch for an object of this cluster. A test in it that fails is a conflict.
func (e *Env) Patch(ctx context.Context, resource schema.GroupVersionResource, key Key, patch jsonpatch.Patch) (*unstructured.Unstructured, error) {
	return e.r.m.patch(ctx, resource, key, patch)
}

// WatchLocal watches further objects of this cluster, and makes every scope of the kind wait until
// f has been called for those that are there. It is for use while New makes the handler.
func (e *Env) WatchLocal(resource schema.GroupVersionResource, o informer.Options, f informer.EventFunc) *informer.Informer {
	made := e.r.m.here.New(resource, o)
	made.OnEvent(f)
	e.r.informers = append(e.r.informers, made)
	return made
}
