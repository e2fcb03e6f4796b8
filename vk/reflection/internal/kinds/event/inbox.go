// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

const (
	// SettlePeriod delays the write of a new Event, unless it is a warning. After this delay, many of the reported
	// situations, or even the objects, no longer exist, so that no write is needed.
	SettlePeriod = 2 * time.Second
	// Window is the time between two writes of one Event, because a crash loop increments its count much faster than
	// users read.
	Window = 10 * time.Second
	// unknownObjectGrace is how long an Event waits for its object to become known. It must wait because the Event
	// and the object arrive in different watches.
	unknownObjectGrace = 10 * time.Second
	// WaitingMost limits the number of Events of one namespace that wait for a write. Each of them takes 3 KiB. Further
	// Events are dropped and counted.
	WaitingMost = 10000
	// missedMost limits the number of kinds that are remembered because their Events were dropped. A limit is needed
	// because clients of the provider choose the names of kinds in Events.
	missedMost = 100
)

// inbox contains the state of the provider's Events in one remote namespace. The watch fills it. Events that have been
// handled are not kept, but each Event has an entry of about 200 bytes as long as it has a copy in this cluster. An
// inbox is safe for concurrent use.
type inbox struct {
	h        *handler
	scope    *engine.Scope
	warnings *rate.Limiter // limits the rate of warnings that are shown

	mu      sync.Mutex
	entries map[string]*entry // keyed by the name of the Event
	waiting int               // number of entries with an Event
	// missed contains the kinds of the objects whose Events were dropped because another virtual kubelet may have shown
	// these Events.
	missed map[schema.GroupKind]bool
	again  context.CancelFunc // cancels the watch, so that it starts again and reads all Events
}

// shared is an element of missed that represents all kinds that another virtual kubelet reflects.
var shared = schema.GroupKind{}

// newInbox returns an inbox without Events.
func newInbox(h *handler, s *engine.Scope) *inbox {
	return &inbox{h: h, scope: s, warnings: rate.NewLimiter(WarningsPerSecond, WarningsBurst), entries: map[string]*entry{}, missed: map[schema.GroupKind]bool{}}
}

// inboxOf returns the inbox of a scope.
func inboxOf(s *engine.Scope) *inbox {
	in, _ := s.State.(*inbox)
	return in
}

// Waiting returns the Event with the given name if it waits for a reconciliation, or nil otherwise.
func Waiting(s *engine.Scope, name string) *unstructured.Unstructured {
	if e := inboxOf(s).open(name); e != nil {
		return e.event
	}
	return nil
}

func (b *inbox) key(name string) queue.Key { return b.scope.Key(name) }

// begin sets the function that readAgain calls to restart the watch.
func (b *inbox) begin(again context.CancelFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.again = again
}

// Learn records the copies of Events that exist in this cluster.
func (b *inbox) Learn(found []unstructured.Unstructured) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range found {
		name, other := strings.CutSuffix(found[i].GetName(), b.h.otherSuffix())
		e := b.entries[name]
		if e == nil {
			e = &entry{}
			b.entries[name] = e
		}
		e.copy, e.other, e.said = rawEventHash(&found[i]), other, eventTime(&found[i])
	}
}

// Add implements cache.ReflectorStore.
func (b *inbox) Add(object any) error {
	if event, ok := object.(*unstructured.Unstructured); ok {
		b.see(event)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (b *inbox) Update(object any) error { return b.Add(object) }

// Replace implements cache.ReflectorStore. If an Event is missing and its copy is young, the Event was deleted, because
// it cannot have expired yet. Other copies are left until they expire.
func (b *inbox) Replace(list []any, _ string) error {
	there := make(map[string]bool, len(list))
	for _, object := range list {
		if event, ok := object.(*unstructured.Unstructured); ok {
			there[event.GetName()] = true
			b.see(event)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.h.Clock().Now()
	for name, e := range b.entries {
		switch {
		case there[name]:
		case e.copy == 0 || now.Sub(later(e.said, e.wrote)) > eventExpiryAge:
			b.drop(name, e)
		default:
			event := &unstructured.Unstructured{Object: map[string]any{}}
			event.SetName(name)
			b.takeLeave(name, e, event, now)
		}
	}
	b.scope.SetReady()
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing, because handled Events need no resync.
func (b *inbox) Resync() error { return nil }

// Delete implements cache.ReflectorStore. Events expire independently in both clusters, an hour after the last write.
// If an Event of this age is deleted, no write is needed in this cluster. If a younger Event is deleted, this was
// intended, so its copy is deleted, too.
func (b *inbox) Delete(object any) error {
	event, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	now := b.h.Clock().Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[event.GetName()]
	switch {
	case e == nil:
	case e.copy == 0 || now.Sub(eventTime(event)) > eventExpiryAge:
		b.drop(event.GetName(), e)
	default:
		b.takeLeave(event.GetName(), e, event, now.Add(SettlePeriod))
	}
	return nil
}

// see schedules an Event that has arrived through the watch. A new warning is enqueued at once.
func (b *inbox) see(event *unstructured.Unstructured) {
	informer.DropManagedFields(event)
	name, hash, now := event.GetName(), rawEventHash(event), b.h.Clock().Now()
	if b.known(name, hash) {
		return
	}
	about := b.h.involved(b.scope, event)
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[name]
	if about == nil {
		if e != nil {
			b.done(e, hash)
			b.sweep(name, e)
		}
		return
	}
	if e == nil {
		e = &entry{}
		b.entries[name] = e
	}
	warning := event.Object["type"] == corev1.EventTypeWarning
	if b.waiting >= WaitingMost && e.event == nil && !warning {
		b.h.Metrics.EventsDropped.Inc()
		b.done(e, hash)
		b.sweep(name, e)
		return
	}
	b.put(e, event, now)
	switch {
	case e.copy != 0:
		b.h.schedule.add(b.key(name), later(now, e.wrote.Add(Window)))
	case warning && about.sure:
		b.h.Queue.Add(b.key(name))
	default:
		b.h.schedule.add(b.key(name), now.Add(SettlePeriod))
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// resume schedules all waiting Events, because the objects of the given kind are known now. It reads all Events again
// if Events about such objects were dropped.
func (b *inbox) resume(kind *engine.Kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, e := range b.entries {
		if e.event != nil {
			b.h.schedule.add(b.key(name), b.h.Clock().Now())
		}
	}
	for missed := range b.missed {
		if kind.Means(missed) {
			b.readAgain()
			return
		}
	}
}

// led reads all Events again if some were dropped because another virtual kubelet showed them.
func (b *inbox) led() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.missed[shared] {
		b.readAgain()
	}
}

// readAgain restarts the watch, which lists all Events again. The caller holds b.mu.
func (b *inbox) readAgain() {
	clear(b.missed)
	if b.again != nil {
		b.again()
	}
}

// miss adds the kind of a dropped Event's object to the field missed.
func (b *inbox) miss(kind schema.GroupKind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.missed) < missedMost {
		b.missed[kind] = true
	}
}

var _ cache.ReflectorStore = (*inbox)(nil)
