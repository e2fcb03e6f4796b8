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
)

const (
	// Settle is how long a new Event that is no warning waits: until then most of what it reports is
	// over, or even the object.
	Settle = 2 * time.Second
	// Window is the time between two writes of one Event: a crash loop counts up much faster than users read.
	Window = 10 * time.Second
	// eventTrial is how long an Event waits for the object that it is about to be known: they come by different watches.
	eventTrial = 10 * time.Second
	// WaitingMost bounds the Events of one namespace that wait to be written, 3 KiB each. The excess is dropped and counted.
	WaitingMost = 10000
	// missedMost bounds the kinds that are remembered for having been dropped: clients of the provider choose their names.
	missedMost = 100
)

// inbox is what is known of the provider's Events in one remote namespace. It takes them from the watch, and keeps none that
// has been dealt with: of one that has a copy here, about 200 bytes remain. Safe for concurrent use.
type inbox struct {
	h        *handler
	scope    *engine.Scope
	warnings *rate.Limiter // that are shown

	mu      sync.Mutex
	entries map[string]*entry // by the Event's name
	waiting int               // entries with an Event
	// missed are the kinds of objects that Events were dropped about, which another virtual kubelet might have shown
	missed map[schema.GroupKind]bool
	again  context.CancelFunc // reads everything once more
}

// shared is the missed kind for all kinds whose objects another virtual kubelet reflects.
var shared = schema.GroupKind{}

func newInbox(h *handler, s *engine.Scope) *inbox {
	return &inbox{h: h, scope: s, warnings: rate.NewLimiter(WarningsPerSecond, WarningsBurst), entries: map[string]*entry{}, missed: map[schema.GroupKind]bool{}}
}

// inboxOf returns that of a scope.
func inboxOf(s *engine.Scope) *inbox {
	in, _ := s.State.(*inbox)
	return in
}

// Waiting returns the Event of that name that waits to be reconciled, or nil.
func Waiting(s *engine.Scope, name string) *unstructured.Unstructured {
	if e := inboxOf(s).open(name); e != nil {
		return e.event
	}
	return nil
}

func (b *inbox) key(name string) engine.Key { return b.scope.Key(name) }

// begin notes how to read everything again.
func (b *inbox) begin(again context.CancelFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.again = again
}

// Learn records existing copies.
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

// Replace implements cache.ReflectorStore. An Event that is not there and whose copy is young was deleted, for it cannot have
// expired; the other copies are left to expire.
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
		case e.copy == 0 || now.Sub(later(e.said, e.wrote)) > eventExpiry:
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

// Resync implements cache.ReflectorStore: an Event that was dealt with stays so.
func (b *inbox) Resync() error { return nil }

// Delete implements cache.ReflectorStore. Events expire by themselves on both sides, an hour after the last write: those
// that go at that age need no write here. An earlier deletion was intended.
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
	case e.copy == 0 || now.Sub(eventTime(event)) > eventExpiry:
		b.drop(event.GetName(), e)
	default:
		b.takeLeave(event.GetName(), e, event, now.Add(Settle))
	}
	return nil
}

// see takes an Event and schedules it. A warning that is new cannot wait.
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
		b.h.EventDropped()
		b.done(e, hash)
		b.sweep(name, e)
		return
	}
	b.put(e, event, now)
	switch {
	case e.copy != 0:
		b.h.schedule.add(b.key(name), later(now, e.wrote.Add(Window)))
	case warning && about.sure:
		b.h.Enqueue(b.key(name))
	default:
		b.h.schedule.add(b.key(name), now.Add(Settle))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// resume enqueues, when the objects of a kind are known at last, the Events that wait for that, and reads everything
// again when some were dropped that were about such objects.
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

// led reads everything again when Events were dropped because another virtual kubelet showed them.
func (b *inbox) led() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.missed[shared] {
		b.readAgain()
	}
}

func (b *inbox) readAgain() {
	clear(b.missed)
	if b.again != nil {
		b.again()
	}
}

// miss remembers that an Event is dropped for what it is about.
func (b *inbox) miss(kind schema.GroupKind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.missed) < missedMost {
		b.missed[kind] = true
	}
}

var _ cache.ReflectorStore = (*inbox)(nil)
