// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package mutationcache remembers the API server's responses to our writes until the watch has delivered the results,
// like client-go's mutation cache. It also finds out which events of the watch only reflect our own write (echoes),
// which objects are known to be deleted, and which writes the watch has failed to report.
package mutationcache

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Grace is how long the response to a write is preferred to a cache that has not caught up. If the time is longer, a
// response whose watch event arrived before it is used for too long. If the time is shorter, writes are repeated
// while the watch is slow.
const Grace = 10 * time.Second

// Cache remembers the API server's responses to our writes until the watch has delivered them. A reconciliation can
// thus read its own earlier writes, and ignore events that are only echoes of them. A Cache is safe for concurrent use.
type Cache struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	last  map[cache.ObjectName]written
	// flying contains the writes that have no response yet, with the events that the watch has delivered since each
	// write began.
	flying map[cache.ObjectName][]step
	// gone contains the UIDs of recently deleted objects. An outdated cache, or a response that arrives after the
	// deletion, must not make such an object reappear. ring contains the UIDs in the order they are dropped. It grows
	// on demand, because there is a Cache for every kind in every namespace.
	gone map[types.UID]bool
	ring []types.UID
	next int
}

// goneMemory is the number of deletions that are remembered. If the watch delivers more deletions while a write waits
// for its response, a deletion may be missed until the next event. A larger number takes more memory.
const goneMemory = 8192

type written struct {
	object  *unstructured.Unstructured // nil if the write was a deletion
	uid     types.UID
	base    uint64 // version before the write, or 0 if the object did not exist
	version uint64 // version in the response
	at      time.Time
}

// step is an event of the watch, i.e. the transition from one version of an object to the next.
type step struct {
	uid      types.UID
	from, to uint64
	deleted  bool
}

// New returns an empty Cache.
func New(clock clock.PassiveClock) *Cache {
	return &Cache{clock: clock, last: map[cache.ObjectName]written{}, flying: map[cache.ObjectName][]step{}, gone: map[types.UID]bool{}}
}

// Wrote records the response to a create, update, apply or patch. before is the known state before the write. It may be
// nil.
func (c *Cache) Wrote(key cache.ObjectName, before, object *unstructured.Unstructured) {
	c.putEntry(key, written{object: object, uid: object.GetUID(), base: versionOf(before), version: versionOf(object)})
}

// Deleted records that the API server has accepted our deletion of the object.
func (c *Cache) Deleted(key cache.ObjectName, object *unstructured.Unstructured) {
	c.putEntry(key, written{uid: object.GetUID(), version: versionOf(object)})
}

func (c *Cache) putEntry(key cache.ObjectName, entry written) {
	entry.at = c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone[entry.uid] {
		delete(c.last, key)
		return
	}
	c.last[key] = entry
}

// noteGone records that the object with the given UID was deleted, or that it exists.
func (c *Cache) noteGone(uid types.UID, gone bool) {
	switch {
	case !gone:
		delete(c.gone, uid)
	case !c.gone[uid]:
		if c.next == len(c.ring) {
			c.ring = append(c.ring, "")
		}
		delete(c.gone, c.ring[c.next])
		c.gone[uid], c.ring[c.next] = true, uid
		c.next = (c.next + 1) % goneMemory
	}
}

// Vanished records that the object no longer exists on the API server although the watch has not delivered the
// deletion.
func (c *Cache) Vanished(key cache.ObjectName, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteGone(uid, true)
	if c.last[key].uid == uid {
		delete(c.last, key)
	}
}

// IsGone reports whether the object is known to have been deleted recently, from the watch or another source.
func (c *Cache) IsGone(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone[uid]
}

// View returns the cached object or the result of our last write, whichever is newer. going reports whether we deleted
// the cached object and the watch has not delivered the deletion yet.
//
// read returns the cached object, or nil. View calls it once, after it has looked up the last write. In the reverse
// order, an event of the watch between the two steps would make View return the state before the write: read would
// return this state, and Seen would have dropped the write. read must return an object that is at least as new as the
// events passed to Seen. No lock is held during the call.
func (c *Cache) View(key cache.ObjectName, read func() *unstructured.Unstructured) (object *unstructured.Unstructured, going bool) {
	c.mu.Lock()
	entry, ok := c.last[key]
	c.mu.Unlock()
	cached := read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if cached != nil && c.gone[cached.GetUID()] {
		cached = nil
	}
	if !ok || c.gone[entry.uid] {
		return cached, false
	}
	if entry.isIncludedIn(versionOf(cached)) {
		if c.last[key] == entry {
			delete(c.last, key)
		}
		return cached, false
	}
	if c.clock.Since(entry.at) > Grace {
		return cached, false // the entry is kept because Unobserved needs it
	}
	if entry.object == nil {
		return cached, cached != nil
	}
	return entry.object, false
}

// isIncludedIn reports whether a state with the given version is at least as new as the write. All objects of a
// resource share one sequence of versions, so the comparison is also valid if another object has taken the same name.
func (w written) isIncludedIn(version uint64) bool {
	return version > w.version || version == w.version && w.object != nil
}

// Unobserved drops writes that the watch should have delivered long ago. It returns the keys of the objects whose write
// is not in the cache, either. Such a write was lost in a gap of the watch: after a restart, a watch does not report
// objects that were created and deleted during the interruption. If we deleted an object that we had created in the
// same gap, its key is also returned, because other objects may wait for the deletion.
func (c *Cache) Unobserved(cached func(cache.ObjectName) *unstructured.Unstructured) (keys []cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, entry := range c.last {
		if c.clock.Since(entry.at) <= Grace {
			continue
		}
		delete(c.last, key)
		if !entry.isIncludedIn(versionOf(cached(key))) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Seen processes an event of the watch and reports whether the event is only the echo of our last write. An echo is a
// transition from the state before our write to the state in its response. Any other event includes a change by another
// client.
//
// While a write has no response, it is unknown whether an event is the echo. Seen then keeps the event, and End
// evaluates it.
func (c *Cache) Seen(key cache.ObjectName, before, object *unstructured.Unstructured, deleted bool) (echo bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteGone(object.GetUID(), deleted)
	s := step{uid: object.GetUID(), from: versionOf(before), to: versionOf(object), deleted: deleted}
	if kept, waits := c.flying[key]; waits {
		c.flying[key] = append(kept, s)
		return true
	}
	return c.isEcho(key, s)
}

func (c *Cache) isEcho(key cache.ObjectName, s step) bool {
	entry, ok := c.last[key]
	if !ok {
		return false
	}
	if s.deleted && s.uid == entry.uid || !s.deleted && entry.isIncludedIn(s.to) {
		delete(c.last, key)
	}
	return !s.deleted && entry.object != nil && s.uid == entry.uid && s.to == entry.version && s.from == entry.base
}

// Begin records that a write is about to be sent. It must be called before the write, because the watch is often faster
// than the response.
func (c *Cache) Begin(key cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flying[key] = nil
}

// End records that the write has succeeded or failed. news reports whether the watch has delivered an event other than
// the write's echo since Begin.
func (c *Cache) End(key cache.ObjectName) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.flying[key] {
		news = !c.isEcho(key, s) || news
	}
	delete(c.flying, key)
	return news
}

// versionOf returns the resourceVersion of an object, or 0 if object is nil. Since Kubernetes 1.35, it is guaranteed to
// be an increasing number.
func versionOf(object *unstructured.Unstructured) uint64 {
	if object == nil {
		return 0
	}
	number, _ := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	return number
}
