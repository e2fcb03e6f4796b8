// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/vk/namespaces"
	"github.com/refract-project/refract/vk/reflection/internal/clients"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/metrics"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
	"github.com/refract-project/refract/vk/reflection/internal/objects"
	"github.com/refract-project/refract/vk/reflection/internal/probation"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/internal/report"
	"github.com/refract-project/refract/vk/reflection/internal/settings"
)

// Env gives the Handler of one kind access to the parts of the engine. An Env is safe for concurrent use.
type Env struct {
	// Clients are the clients of both clusters.
	Clients *clients.Clients
	// Copies writes the copies of the kind on the provider.
	Copies *copies.Writer
	// Objects writes to the objects of the kind in this cluster.
	Objects *objects.Writer
	// Settings follow the VirtualNode, the virtual nodes, and the network.
	Settings *settings.Settings
	// Mutator runs the plugin chains of the kind.
	Mutator *mutation.Mutator
	// Queue contains the objects that wait for an evaluation.
	Queue *queue.Queue
	// Events reports to users, in Events about objects of this cluster.
	Events *report.KindReporter
	// Metrics are the metrics of the Manager, and Writes its counter for writes of the kind.
	Metrics *metrics.Metrics
	Writes  metrics.WriteCounter

	r *reflector
}

// Kind returns the reflected kind. The caller must not modify it.
func (e *Env) Kind() *Kind { return &e.r.kind }

// Options returns the options of the Manager. The caller must not modify them.
func (e *Env) Options() *Options { return &e.r.m.options }

// Clock returns the clock.
func (e *Env) Clock() clock.WithTicker { return e.r.m.options.Clock }

// Log returns the logger, for problems that are not reported on an object.
func (e *Env) Log() *slog.Logger { return e.r.m.log }

// Ownership returns the labels that identify copies.
func (e *Env) Ownership() map[string]string { return e.r.m.options.ownership(e.r.kind) }

// Forget drops the remembered state of a deleted object.
func (e *Env) Forget(key queue.Key) { e.r.forget(key) }

// EnqueueAll enqueues every object of every scope of the kind that is ready.
func (e *Env) EnqueueAll() { e.r.enqueueAll() }

// EvaluatedOthers returns the number of evaluations of all other kinds.
func (e *Env) EvaluatedOthers() uint64 { return e.r.m.evaluated.Load() - e.r.evaluated.Load() }

// ListWatchRemote returns a ListerWatcher for objects of the provider. Its requests wait while the provider is known
// to be unreachable.
func (e *Env) ListWatchRemote(s informer.Selection) cache.ListerWatcher {
	return e.Clients.There.ListWatch(e.r.kind.Source, s)
}

// Scope returns the scope of this kind in an offloaded namespace, or nil.
func (e *Env) Scope(namespace string) *Scope {
	if t := e.r.m.extension(namespace); t != nil {
		return t.of(e.r.kind.Name)
	}
	return nil
}

// Scopes returns the scopes of this kind in all offloaded namespaces.
func (e *Env) Scopes() (all []*Scope) {
	for _, t := range e.r.m.allExtensions() {
		if s := t.of(e.r.kind.Name); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// IsReflected reports whether a kind is reflected, by this or another virtual kubelet of the provider.
func (e *Env) IsReflected(kind string) bool { return e.r.m.reflector(kind) != nil }

// IsExtended reports whether objects of a namespace are reflected.
func (e *Env) IsExtended(namespace string) bool { return e.r.m.extension(namespace) != nil }

// NamespaceState returns the state of a namespace in the NamespaceMap, and reports whether the NamespaceMap has been
// read.
func (e *Env) NamespaceState(namespace string) (state namespaces.State, known bool) {
	return e.r.m.mapper.State(namespace), e.r.m.mapper.Synced()
}

// MapNames reads the NamespaceMap from the API server and reports whether it names a namespace, or may do so.
func (e *Env) MapNames(ctx context.Context, namespace string) (bool, error) {
	return e.r.m.mapper.Names(ctx, namespace)
}

// OfNode returns the objects of this node, for kinds with PerNode, or nil as long as they have not been read.
func (e *Env) OfNode() []*unstructured.Unstructured {
	if !e.r.ofNode.HasSynced() {
		return nil
	}
	return e.r.ofNode.All()
}

// ObjectOfNode returns an object of this node, at least as new as our last write to it, or nil.
func (e *Env) ObjectOfNode(key queue.Key) *unstructured.Unstructured {
	return e.Objects.View(key, func() *unstructured.Unstructured { return e.r.ofNode.Get(key.Namespace, key.Name) })
}

// IsLeading reports whether this virtual kubelet reflects the kinds that belong to the provider rather than to a node.
func (e *Env) IsLeading() bool { return e.r.m.leading.Load() }

// Epoch returns a number that changes whenever the desired copy of an object may change although the object does not:
// because of a plugin chain, the labels of namespaces, a setting, or the mapping of addresses.
func (e *Env) Epoch() uint64 {
	return e.r.m.settings.Changes() + e.r.swaps.Load() + e.r.m.relabels.Load()
}

// WaitForShared waits for the caches that every evaluation of the kind needs, and reports whether they are filled.
func (e *Env) WaitForShared(ctx context.Context) bool {
	return cache.WaitFor(ctx, "", e.r.m.sharedCaches(e.r.kind)...)
}

// WatchLocal watches further objects of this cluster, and makes every scope of the kind wait until f has been called
// for the existing ones. It may be called only while New creates the handler.
func (e *Env) WatchLocal(resource schema.GroupVersionResource, o informer.Options, f informer.EventFunc) *informer.Informer {
	made := e.Clients.Here.New(resource, o)
	made.OnEvent(f)
	e.r.informers = append(e.r.informers, made)
	return made
}

// MayRemove returns an error if the copy of an object that a plugin skips is not removed yet, because of the
// probation of a plugin. in is the input of the chain. The object is enqueued again when the probation ends.
func (e *Env) MayRemove(ctx context.Context, w *evaluation.Worker, hook host.Hook, s *Scope,
	local *unstructured.Unstructured, in *mutation.Input) error {
	err := e.Mutator.MayRemove(ctx, w, hook, s.Local, local.Object, in)
	var held *probation.HeldError
	if errors.As(err, &held) {
		name, _ := raw.Nested(in.Object, "metadata", "name").(string)
		e.Queue.AddAfter(s.Key(e.Copies.LocalName(name)), held.Left+copies.Soon)
	}
	return err
}

// AddressNotAllowedReason is the reason of the Event about an address of the provider that is not shown.
const AddressNotAllowedReason = "AddressNotAllowed"

// IsNotAllowed reports whether nothing of a provider can have the address: it is not an address in canonical form, is
// reserved, is in this cluster, or is in none of the known ranges of the provider. Empty ranges allow all addresses.
// Without this check, a provider could direct the traffic of a Service of this cluster to any address.
// (CVE-2021-25740 belongs to this class of vulnerabilities.)
func (e *Env) IsNotAllowed(address string, known ipmap.Ranges) bool {
	if _, err := netip.ParseAddr(address); err != nil {
		// The text is not in canonical form. Older API servers accept texts such as 010.96.0.1, which other programs
		// parse as another address.
		return true
	}
	o := e.Options()
	return ipmap.Reserved(address) || o.LocalPodCIDRs.Contain(address) || o.OwnCIDRs.Contain(address) || len(known) > 0 && !known.Contain(address)
}

// WarnOfAddresses warns about addresses that are not shown.
func (e *Env) WarnOfAddresses(w *evaluation.Worker, object *unstructured.Unstructured, addresses []string) {
	w.Warned = true
	e.Events.Warn(object, AddressNotAllowedReason, fmt.Sprintf(
		"cluster %s reported the address %s, which is reserved, belongs to this cluster, or is outside the provider's CIDRs, and was ignored. Check the provider's network, or correct --own-cidrs, --local-podcidr, --remote-pod-cidr-remap and --foreign-cidrs",
		e.Options().RemoteClusterID, strings.Join(addresses, ", ")))
}
