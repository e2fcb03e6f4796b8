// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// entry is one Event of the provider.
type entry struct {
	event *unstructured.Unstructured // waits to be reconciled; nil when nothing does
	gone  bool                       // it was deleted
	since time.Time                  // event waits
	seen  uint64                     // hash of what was last dealt with
	copy  uint64                     // hash of what the copy says, 0 without one
	wrote time.Time                  // last
	said  time.Time                  // what the copy says, when it was read
	other bool                       // the copy has the other name, its own is taken
}

// known reports whether an Event says nothing that was not dealt with. The copy of one that the plugins leave as it is says
// the same, so that after a restart nothing needs to be mutated to know it.
func (b *inbox) known(name string, hash uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[name]
	return e != nil && e.event == nil && (hash == e.seen || hash == e.copy)
}

// open returns what is known of an Event that waits to be reconciled, else nil.
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

// close records what became of an Event as it was opened. A newer state of it that has come meanwhile gets its date.
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

// record notes the copy of an Event that was opened and remains to be reconciled.
func (b *inbox) record(name string, opened *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[name]; e != nil {
		e.setCopy(opened)
	}
}

// setCopy takes over the copy of another entry of the same Event.
func (e *entry) setCopy(of *entry) { e.copy, e.wrote, e.other = of.copy, of.wrote, of.other }

func (b *inbox) put(e *entry, event *unstructured.Unstructured, now time.Time) {
	if e.event == nil {
		b.waiting++
		e.since = now
	}
	e.event, e.gone = event, false
}

// takeLeave plans that the copy of an Event goes which is not there any more.
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

// sweep forgets an Event that was dealt with and has no copy.
func (b *inbox) sweep(name string, e *entry) {
	if e.copy == 0 {
		delete(b.entries, name)
	}
}
