// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
	"github.com/refract-project/refract/vk/reflection/internal/objects"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/internal/report"
)

// reflector reflects one kind.
type reflector struct {
	m       *Manager
	kind    Kind
	mute    bool // statuses are not reflected back, and earlier reflected ones are removed; see Options.WithoutStatus
	env     *Env
	handler Handler
	queue   *queue.Queue
	copies  *copies.Writer
	objects *objects.Writer
	mutator *mutation.Mutator
	events  *report.KindReporter

	cancel func()         // stops the workers
	wg     sync.WaitGroup // running workers
	// ofNode contains the objects of this node in all namespaces. It is nil for kinds that are watched in each
	// offloaded namespace.
	ofNode *informer.Informer
	// informers contains the informers that the handler uses in all namespaces.
	informers []*informer.Informer

	evaluated atomic.Uint64 // number of evaluated objects
	swaps     atomic.Uint64 // number of times that the kind's chains were swapped
}

// newReflector returns a reflector for a kind. The reflector does not run yet.
func (m *Manager) newReflector(kind Kind) (*reflector, error) {
	r := &reflector{m: m, kind: kind, mute: slices.Contains(m.options.WithoutStatus, kind.Name), events: m.events.ForKind(kind.Name)}
	r.queue = queue.New(m.options.Clock, r.isUrgent, r.arrived)
	writes := m.metrics.WritesOf(kind.Name)
	var err error
	r.copies, err = copies.New(copies.Options{
		Kind: kind.Name, Source: kind.Source, Spec: kind.Copy, Keep: kind.Cache.Copies, Owned: m.options.ownership(kind),
		LocalClusterID: m.options.LocalClusterID, RemoteClusterID: m.options.RemoteClusterID,
		Clients: m.clients, Queue: r.queue, Events: r.events, Writes: writes, Clock: m.options.Clock,
	})
	if err != nil {
		return nil, fmt.Errorf("selecting the copies of kind %s, %w", kind.Name, err)
	}
	r.objects = objects.New(objects.Options{
		Kind: kind.Name, Source: kind.Source, Spec: kind.Status, KnowsCluster: m.settings.KnowsCluster,
		LocalClusterID: m.options.LocalClusterID, RemoteClusterID: m.options.RemoteClusterID, SettlePeriod: m.options.SettleAfter,
		Clients: m.clients, Queue: r.queue, Events: r.events, Writes: writes, Clock: m.options.Clock,
	})
	r.mutator = &mutation.Mutator{
		Kind: kind.Name, Confidential: kind.Chain.Confidential, Chains: m.options.Registry, Probations: m.options.Probations, Events: r.events, Metrics: m.metrics, Remapper: m.settings.Remapper,
		CheckOutput: r.checkOutput,
	}
	r.env = &Env{
		Clients: m.clients, Settings: m.settings, Copies: r.copies, Objects: r.objects, Mutator: r.mutator, Queue: r.queue, Events: r.events, Metrics: m.metrics, Writes: writes, r: r,
	}
	r.handler = Base{r.env}
	if kind.Handler != nil {
		if r.handler, err = kind.Handler(r.env); err != nil {
			return nil, fmt.Errorf("preparing kind %s, %w", kind.Name, err)
		}
	}
	if !kind.PerNode {
		return r, nil
	}
	r.ofNode = m.informer(kind.Source, informer.Options{Selection: informer.Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", m.options.NodeName).String()}})
	r.ofNode.OnEvent(r.ofNodeChanged)
	return r, nil
}

// checkOutput returns an error if the result of a chain is not a valid object.
func (r *reflector) checkOutput(w *evaluation.Worker, hook host.Hook) error {
	if hook == host.Incoming && !r.kind.Reverse {
		_, err := mutation.OutputStatus(w, r.kind.Status.Handled)
		return err
	}
	return r.copies.CheckOutput(w)
}

// ofNodeChanged handles a change to an object of this node by enqueuing the object.
func (r *reflector) ofNodeChanged(before, object *unstructured.Unstructured, deleted bool) {
	if t := r.m.extension(object.GetNamespace()); t != nil {
		if s := t.of(r.kind.Name); s != nil {
			s.objectChanged(before, object, deleted)
		}
		return
	}
	if r.m.standing.Load() {
		return
	}
	if !r.objects.Seen(before, object, deleted) && (deleted || r.handler.ObjectMatters(before, object)) {
		r.queue.Add(raw.Key(object))
	}
}

// informer returns the informer for a resource of this cluster. There is one informer for each resource, with the
// options of the first call, and all callers share it.
func (m *Manager) informer(resource schema.GroupVersionResource, o informer.Options) *informer.Informer {
	if m.informers[resource] == nil {
		m.informers[resource] = m.clients.Here.New(resource, o)
	}
	return m.informers[resource]
}
