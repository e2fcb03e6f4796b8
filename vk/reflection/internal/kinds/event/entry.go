// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// entry is the state of one Event of the provider.
type entry struct {
	event *unstructured.Unstructured // Event that waits for a reconciliation, or nil
	gone  bool                       // the Event was deleted
	since time.Time                  // time since which event waits
	seen  uint64                     // hash of the Event that was handled last
	copy  uint64                     // hash of the copy, 0 if there is no copy
	wrote time.Time                  // time of the last write
	said  time.Time                  // time of the Event in the copy, when the copy was read
	other bool                       // the copy has the other name, because its own is taken
}

// known reports whether an Event has no news. If the plugins leave the Event unchanged, the copy has the same hash, so
// after a restart no mutation is needed to find out.
func (b *inbox) known(name string, hash uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[name]
	return e != nil && e.event == nil && (hash == e.seen || hash == e.copy)
}

// open returns a copy of the entry of an Event that waits for a reconciliation, or nil.
func (b *inbox) open(name string) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[name]
	if e == nil || e.event == nil {
		return nil
	}
	known := *e
	return &known
}

// close records the result of a reconciliation of an Event in the opened state. A newer state, which has arrived
// meanwhile, is scheduled.
func (b *inbox) close(name string, opened *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[name]
	if e == nil {
		return
	}
	e.setCopy(opened)
	switch {
	case e.event == opened.event && opened.gone:
		b.drop(name, e)
	case e.event == opened.event:
		b.done(e, rawEventHash(opened.event))
		b.sweep(name, e)
	case e.event != nil:
		b.h.schedule.add(b.key(name), e.wrote.Add(Window))
	}
}

// record records the copy of an opened Event that remains to reconcile.
func (b *inbox) record(name string, opened *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[name]; e != nil {
		e.setCopy(opened)
	}
}

// setCopy sets the fields about the copy from another entry of the same Event.
func (e *entry) setCopy(of *entry) { e.copy, e.wrote, e.other = of.copy, of.wrote, of.other }

func (b *inbox) put(e *entry, event *unstructured.Unstructured, now time.Time) {
	if e.event == nil {
		b.waiting++
		e.since = now
	}
	e.event, e.gone = event, false
}

// takeLeave schedules the deletion of the copy of an Event that no longer exists.
func (b *inbox) takeLeave(name string, e *entry, event *unstructured.Unstructured, at time.Time) {
	b.put(e, event, b.h.Clock().Now())
	e.gone = true
	b.h.schedule.add(b.key(name), at)
}

func (b *inbox) done(e *entry, hash uint64) {
	if e.event != nil {
		b.waiting--
	}
	e.event, e.gone, e.seen = nil, false, hash
}

func (b *inbox) drop(name string, e *entry) {
	b.done(e, 0)
	delete(b.entries, name)
}

// sweep forgets an Event that was handled and has no copy.
func (b *inbox) sweep(name string, e *entry) {
	if e.copy == 0 {
		delete(b.entries, name)
	}
}
