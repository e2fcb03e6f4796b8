// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package copies writes the copies of objects to the provider. It reads the desired copy from the mutated document,
// compares it with the existing copy, and creates, updates, applies or deletes the copy. Each write has a precondition.
package copies

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/clients"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/metrics"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/report"
)

// Options are the options of New. All fields are required unless a comment says otherwise.
type Options struct {
	Kind   string                      // name of the kind, with its API group
	Source schema.GroupVersionResource // resource of the local objects
	Spec   Spec
	Keep   func(map[string]any) map[string]any // returns the part of a copy's content that is cached; nil means the whole content

	LocalClusterID, RemoteClusterID string
	// Owned are the labels that identify copies.
	Owned map[string]string

	Clients *clients.Clients
	Queue   *queue.Queue
	Events  *report.KindReporter
	Writes  metrics.WriteCounter
	Clock   clock.PassiveClock
}

// Writer writes the copies of one kind to the provider. It is safe for concurrent use.
type Writer struct {
	// Resource is the resource of the copies.
	Resource schema.GroupVersionResource
	// Trim reduces a copy to the part that is cached. If it is nil, the whole copy is cached.
	Trim informer.Trim

	kind     string
	copyKind string // kind of the copies, for messages
	spec     Spec
	owned    map[string]string // labels that identify copies
	added    map[string]string // labels of new copies: owned and Spec.Labels
	selects  labels.Selector   // selects the copies by their labels
	// there maps the names of objects to the names of their copies, and here does the reverse. The maps contain only
	// names that differ.
	there, here                     map[string]string
	localClusterID, remoteClusterID string
	clients                         *clients.Clients
	queue                           *queue.Queue
	events                          *report.KindReporter
	writes                          metrics.WriteCounter
	clock                           clock.PassiveClock
}

// New returns a Writer for the copies of one kind. It returns an error if Spec.Except is not a label selector.
func New(o Options) (*Writer, error) {
	c := &Writer{
		Resource: o.Source, Trim: content.Trimmer(o.Keep, o.Spec.Into), kind: o.Kind, copyKind: schema.ParseGroupKind(o.Kind).Kind, spec: o.Spec,
		owned: o.Owned, added: maps.Clone(o.Owned), localClusterID: o.LocalClusterID, remoteClusterID: o.RemoteClusterID,
		clients: o.Clients, queue: o.Queue, events: o.Events, writes: o.Writes, clock: o.Clock,
	}
	maps.Copy(c.added, o.Spec.Labels)
	c.spec.DropLabels = append(slices.Clone(o.Spec.DropLabels), wire.Bookkeeping()...)
	c.spec.DropAnnotations = append(slices.Clone(o.Spec.DropAnnotations), wire.Bookkeeping()...)
	if o.Spec.GVR.Resource != "" {
		c.Resource = o.Spec.GVR
	}
	c.copyKind = cmp.Or(o.Spec.GVK.Kind, c.copyKind)
	if o.Spec.Rename != nil {
		c.there, c.here = o.Spec.Rename(o.LocalClusterID), map[string]string{}
		for local, remote := range c.there {
			c.here[remote] = local
		}
	}
	var err error
	c.selects, err = labels.Parse(c.Selector())
	return c, err
}

// Namespace contains the state of the copies of one kind in one remote namespace, in particular the writes to them. The
// state becomes invalid if the local namespace gets another remote namespace, or if the remote namespace is created
// again.
type Namespace struct {
	Local, Remote string // names of the local namespace and of its remote namespace
	cause         func(local *unstructured.Unstructured) uint64
	writes        *mutationcache.Cache
	accepted      mutationcache.Acceptances
	fights        *oscillation.Guard[queue.Key]
}

// NewNamespace returns a Namespace without recorded writes. cause returns the hash of all inputs of a copy. If another
// client has reverted a write, the write is repeated at once only if this hash has changed.
func NewNamespace(local, remote string, cause func(local *unstructured.Unstructured) uint64, clock clock.PassiveClock) *Namespace {
	return &Namespace{Local: local, Remote: remote, cause: cause, writes: mutationcache.New(clock), fights: oscillation.New[queue.Key](clock, oscillation.Standard)}
}

// Key returns the key of an object in the local namespace.
func (n *Namespace) Key(name string) queue.Key { return queue.Key{Namespace: n.Local, Name: name} }

// View returns a copy that is at least as new as our last write to it, or nil. read returns the copy that the watch has
// delivered last, or nil; see [mutationcache.Cache.View]. going reports whether this process has deleted the copy and
// the deletion is not complete.
func (n *Namespace) View(key queue.Key, read func() *unstructured.Unstructured) (object *unstructured.Unstructured, going bool) {
	return n.writes.View(key, read)
}

// Seen records a change that the watch has delivered. echo reports whether the change is only the result of our own
// write.
func (n *Namespace) Seen(key queue.Key, before, copied *unstructured.Unstructured, deleted bool) (echo bool) {
	return n.writes.Seen(key, before, copied, deleted)
}

// Unobserved returns the objects with a write that the watch has not delivered in time.
func (n *Namespace) Unobserved(cached func(queue.Key) *unstructured.Unstructured) []queue.Key {
	return n.writes.Unobserved(cached)
}

// IsGone reports whether the watch has delivered the deletion of the copy with the given UID.
func (n *Namespace) IsGone(uid types.UID) bool { return n.writes.IsGone(uid) }

// Forget removes the conflicts and the accepted writes that are recorded for the copy of a deleted object.
func (n *Namespace) Forget(key queue.Key) {
	n.fights.DropKey(key)
	n.accepted.Forget(key)
}

// Quarantined returns the number of copies that are not written because another client reverts them repeatedly.
func (n *Namespace) Quarantined() int { return n.fights.Quarantined() }
