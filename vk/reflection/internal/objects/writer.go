// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package objects patches objects of this cluster. Most of the patches write statuses, and the annotations that name
// the owner of a status.
package objects

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/clients"
	"github.com/refract-project/refract/vk/reflection/internal/metrics"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/internal/report"
	"github.com/refract-project/refract/vk/reflection/internal/statusdelay"
)

// Options are the options of New. Fields are required unless stated otherwise.
type Options struct {
	Kind   string                      // name of the kind, with its API group
	Source schema.GroupVersionResource // resource of the objects
	Spec   Status

	LocalClusterID, RemoteClusterID string
	// KnowsCluster reports whether this cluster has a virtual node for the cluster with the given ID.
	KnowsCluster func(id string) bool
	// SettlePeriod is the delay of statusdelay.Policy.Settle. 0 means no delay.
	SettlePeriod time.Duration

	Clients *clients.Clients
	Queue   *queue.Queue
	Events  *report.KindReporter
	Writes  metrics.WriteCounter
	Clock   clock.PassiveClock
}

// Writer writes to the local objects of one kind. It is safe for concurrent use.
type Writer struct {
	// Delays decides when statuses are written.
	Delays *statusdelay.Policy

	kind, sourceKind                string // name of the kind with its API group, and without it
	source                          schema.GroupVersionResource
	spec                            Status
	localClusterID, remoteClusterID string
	knowsCluster                    func(id string) bool
	clients                         *clients.Clients
	queue                           *queue.Queue
	events                          *report.KindReporter
	writes                          metrics.WriteCounter
	clock                           clock.PassiveClock

	localWrites *mutationcache.Cache
	accepted    mutationcache.Acceptances     // the forms in which this cluster's API server has stored statuses
	shown       *oscillation.Guard[queue.Key] // detects statuses that another client keeps reverting
	strangers   strangers
}

// New returns a Writer for one kind.
func New(o Options) *Writer {
	return &Writer{
		Delays: statusdelay.New(o.SettlePeriod),
		kind:   o.Kind, sourceKind: schema.ParseGroupKind(o.Kind).Kind, source: o.Source, spec: o.Spec,
		localClusterID: o.LocalClusterID, remoteClusterID: o.RemoteClusterID, knowsCluster: o.KnowsCluster,
		clients: o.Clients, queue: o.Queue, events: o.Events, writes: o.Writes, clock: o.Clock,
		localWrites: mutationcache.New(o.Clock), shown: oscillation.New[queue.Key](o.Clock, oscillation.Standard),
	}
}

// View returns an object that is at least as new as our last write of it. read returns the object that the watch last
// delivered, or nil; see [mutationcache.Cache.View]. The result is nil if the object does not exist.
func (o *Writer) View(key queue.Key, read func() *unstructured.Unstructured) *unstructured.Unstructured {
	object, _ := o.localWrites.View(key, read)
	return object
}

// Seen records a change that the watch has delivered. echo reports whether the change only reflects our own write.
func (o *Writer) Seen(before, object *unstructured.Unstructured, deleted bool) (echo bool) {
	return o.localWrites.Seen(raw.Key(object), before, object, deleted)
}

// Accepted reports whether the API server stored status after an earlier write of asked (see Accept).
func (o *Writer) Accepted(key queue.Key, asked, status uint64) bool {
	return o.accepted.Accepted(key, asked, status, o.clock.Now())
}

// Accept records that the API server stored status after a write of asked. The arguments are hashes.
func (o *Writer) Accept(key queue.Key, asked, status uint64) {
	o.accepted.Accept(key, asked, status)
}

// Quarantined returns the number of statuses that are not written because another client keeps reverting them.
func (o *Writer) Quarantined() int { return o.shown.Quarantined() }

// Forget drops the state of a deleted object.
func (o *Writer) Forget(key queue.Key) {
	o.accepted.Forget(key)
	o.strangers.forget(key)
	o.shown.DropKey(key)
	o.Delays.Forget(key)
}
