// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// entry is the state of one of the provider's Events.
type entry struct {
	event *unstructured.Unstructured // the Event while it waits for a reconciliation, otherwise nil
	gone  bool                       // the Event was deleted
	since time.Time                  // time since which the Event waits
	seen  uint64                     // hash of the last state of the Event that was handled
	copy  uint64                     // hash of the copy; 0 if there is no copy
	wrote time.Time                  // time of the last write to the copy
	said  time.Time                  // event time in the copy, as of the last list of copies
	other bool                       // the copy has its alternative name (see CopyName), because another object has the first name
}

// known reports whether an Event contains nothing new since it was handled. If the plugins leave the Event unchanged,
// the copy has the same hash as the Event. An Event can therefore be recognized after a restart without running the
// plugins.
func (b *inbox) known(name string, hash uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[name]
	return e != nil && e.event == nil && (hash == e.seen || hash == e.copy)
}

// open returns a copy of an Event's entry for a reconciliation, or nil if the Event does not wait for one.
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

// close records that a reconciliation has handled the opened state of an Event. If a newer state has arrived in the
// meantime, it is scheduled.
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

// record records the copy of an opened Event that still needs a reconciliation.
func (b *inbox) record(name string, opened *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[name]; e != nil {
		e.setCopy(opened)
	}
}

// setCopy takes the fields about the copy from another entry of the same Event.
func (e *entry) setCopy(of *entry) { e.copy, e.wrote, e.other = of.copy, of.wrote, of.other }

// put records the latest state of an Event, which now waits for a reconciliation. The caller holds b.mu.
func (b *inbox) put(e *entry, event *unstructured.Unstructured, now time.Time) {
	if e.event == nil {
		b.waiting++
		e.since = now
	}
	e.event, e.gone = event, false
}

// takeLeave records that an Event no longer exists, and schedules the deletion of its copy.
func (b *inbox) takeLeave(name string, e *entry, event *unstructured.Unstructured, at time.Time) {
	b.put(e, event, b.h.Clock().Now())
	e.gone = true
	b.h.schedule.add(b.key(name), at)
}

// done records that an Event with this hash was handled. The caller holds b.mu.
func (b *inbox) done(e *entry, hash uint64) {
	if e.event != nil {
		b.waiting--
	}
	e.event, e.gone, e.seen = nil, false, hash
}

// drop removes an Event together with its entry. The caller holds b.mu.
func (b *inbox) drop(name string, e *entry) {
	b.done(e, 0)
	delete(b.entries, name)
}

// sweep removes the entry of an Event that was handled and has no copy.
func (b *inbox) sweep(name string, e *entry) {
	if e.copy == 0 {
		delete(b.entries, name)
	}
}
