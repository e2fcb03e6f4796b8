// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/vk/reflection/internal/informer"
)

const (
	// eventSettle is how long the first word of an Event that is no warning waits: until then most of what it tells of is
	// over, or even the object.
	eventSettle = 2 * time.Second
	// eventWindow is the time between two writes of one Event: a crash loop counts up much faster than anybody reads.
	eventWindow = 10 * time.Second
	// eventTrial is how long an Event waits for the object that it is about to be known: they come by different watches.
	eventTrial = 10 * time.Second
	// waitingMost bounds the Events of one namespace that wait to be written, 3 KiB each. What comes on top is dropped and counted.
	waitingMost = 10000
	// missedMost bounds the kinds that are remembered for having been dropped: whoever writes Events there names them.
	missedMost = 100
)

// inbox is what is known of the provider's Events in one remote namespace. It takes them from the watch, and keeps none that
// has been dealt with: of one that has a copy here, about 200 bytes remain. Safe for concurrent use.
type inbox struct {
	r *reflector
	t *extension
	c *copies

	mu      sync.Mutex
	entries map[string]*entry // by the Event's name
	waiting int               // entries with an Event
	// missed are the kinds of objects that Events were dropped about, which might have been shown by somebody else
	missed map[schema.GroupKind]bool
	again  context.CancelFunc // reads everything once more
}

// shared is the missed kind that stands for all whose objects another virtual kubelet reflects.
var shared = schema.GroupKind{}

func newInbox(r *reflector, t *extension, c *copies) *inbox {
	return &inbox{r: r, t: t, c: c, entries: map[string]*entry{}, missed: map[schema.GroupKind]bool{}}
}

func (b *inbox) key(name string) Key { return Key{Namespace: b.t.local, Name: name} }

// begin notes how to read everything again.
func (b *inbox) begin(again context.CancelFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.again = again
}

// learn takes note of copies that are there.
func (b *inbox) learn(found []unstructured.Unstructured) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range found {
		name, other := strings.CutSuffix(found[i].GetName(), b.r.otherSuffix())
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
	now := b.r.m.options.Clock.Now()
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
	b.c.ready.Store(true)
	return nil
}

// Resync implements cache.ReflectorStore: an Event that was dealt with stays so.
func (b *inbox) Resync() error { return nil }

// Delete implements cache.ReflectorStore. Events expire by themselves on both sides, an hour after the last write: those
// that go at that age need no write here. Who took one away earlier meant it.
func (b *inbox) Delete(object any) error {
	event, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	now := b.r.m.options.Clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[event.GetName()]
	switch {
	case e == nil:
	case e.copy == 0 || now.Sub(eventTime(event)) > eventExpiry:
		b.drop(event.GetName(), e)
	default:
		b.takeLeave(event.GetName(), e, event, now.Add(eventSettle))
	}
	return nil
}

// see takes an Event and plans when to look at it. The first word of a warning cannot wait.
func (b *inbox) see(event *unstructured.Unstructured) {
	_, _ = informer.DropManagedFields(event)
	name, hash, now := event.GetName(), rawEventHash(event), b.r.m.options.Clock.Now()
	if b.known(name, hash) {
		return
	}
	about := b.r.involved(b.t, event)
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
	if b.waiting >= waitingMost && e.event == nil && !warning {
		b.r.m.metrics.eventsDropped.Inc()
		b.done(e, hash)
		b.sweep(name, e)
		return
	}
	b.put(e, event, now)
	switch {
	case e.copy != 0:
		b.r.schedule.add(b.key(name), later(now, e.wrote.Add(eventWindow)))
	case warning && about.sure:
		b.r.queue.Add(b.key(name))
	default:
		b.r.schedule.add(b.key(name), now.Add(eventSettle))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// resume looks again, when the objects of a kind are known at last, at the Events that wait for that, and reads everything
// again when some were dropped that were about such objects.
func (b *inbox) resume(kind *Kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, e := range b.entries {
		if e.event != nil {
			b.r.schedule.add(b.key(name), b.r.m.options.Clock.Now())
		}
	}
	for missed := range b.missed {
		if kind.means(missed) {
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
