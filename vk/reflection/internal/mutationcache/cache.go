// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package mutationcache remembers the responses of an API server to our writes until the watch has delivered them,
// like client-go's mutation cache. In addition it tracks which events of the watch are only the echo of a write,
// which objects are known to be deleted, and which writes the watch never reported.
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

// Grace is how long the response to a write is preferred to a cache that has not caught up. A longer time would keep a
// response whose watch event arrived before it; a shorter one would cause repeated writes when the watch is slow.
const Grace = 10 * time.Second

// Cache remembers the API server's responses to our writes until the watch has delivered them. A reconciliation sees
// its own writes, and can ignore the events that only echo them. Safe for concurrent use.
type Cache struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	last  map[cache.ObjectName]written
	// flying has the writes that wait for a response, each with the events that the watch has delivered meanwhile.
	flying map[cache.ObjectName][]step
	// gone has objects that were deleted recently. The response to a write may arrive after the deletion, and neither
	// the response nor an outdated cache may bring the object back. ring is the order in which they are forgotten. It
	// grows on demand, because there is a cache per kind and namespace.
	gone map[types.UID]bool
	ring []types.UID
	next int
}

// goneMemory is the number of deletions that may be delivered while a write waits for its response. A larger number
// costs memory. With a smaller one, a deletion could be missed until the next event.
const goneMemory = 8192

type written struct {
	object  *unstructured.Unstructured // nil if we deleted the object
	uid     types.UID
	base    uint64 // version before the write, 0 if there was no object
	version uint64 // version in the response
	at      time.Time
}

// step is an event of the watch, which leads from one version to another.
type step struct {
	uid      types.UID
	from, to uint64
	deleted  bool
}

// New returns an empty Cache.
func New(clock clock.PassiveClock) *Cache {
	return &Cache{clock: clock, last: map[cache.ObjectName]written{}, flying: map[cache.ObjectName][]step{}, gone: map[types.UID]bool{}}
}

// Wrote records the response to a create, update, apply or patch. before is the known state before the write, or nil.
func (c *Cache) Wrote(key cache.ObjectName, before, object *unstructured.Unstructured) {
	c.putEntry(key, written{object: object, uid: object.GetUID(), base: versionOf(before), version: versionOf(object)})
}

// Deleted records that the deletion of the object was accepted.
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

// noteGone records whether the object with a uid is gone or exists.
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

// Vanished records that the API server no longer has the object, independently of the watch.
func (c *Cache) Vanished(key cache.ObjectName, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteGone(uid, true)
	if c.last[key].uid == uid {
		delete(c.last, key)
	}
}

// IsGone reports whether the object is known, from the watch or otherwise, to have been deleted recently.
func (c *Cache) IsGone(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone[uid]
}

// View returns the newer of the cached object and our last write. going is true while our deletion of the cached
// object has not been delivered.
func (c *Cache) View(key cache.ObjectName, cached *unstructured.Unstructured) (object *unstructured.Unstructured, going bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cached != nil && c.gone[cached.GetUID()] {
		cached = nil
	}
	entry, ok := c.last[key]
	if !ok {
		return cached, false
	}
	if entry.isIncludedIn(versionOf(cached)) {
		delete(c.last, key)
		return cached, false
	}
	if c.clock.Since(entry.at) > Grace {
		return cached, false // the entry stays for Unobserved
	}
	if entry.object == nil {
		return cached, cached != nil
	}
	return entry.object, false
}

// isIncludedIn reports whether a state with that version includes the write. All objects of a resource share one sequence of
// versions, so this also holds for another object of the same name: an object of an earlier version no longer exists.
func (w written) isIncludedIn(version uint64) bool {
	return version > w.version || version == w.version && w.object != nil
}

// Unobserved forgets the writes that the watch should have delivered long ago, and returns the ones that the cache does
// not have either. They fell into a gap of the watch: a restarted watch does not report objects created and deleted
// meanwhile. The same applies to our deletion of an object that we created in the same gap: its waiters would not be
// notified.
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

// Seen processes an event of the watch and reports whether it only echoes our last write: the step from the state on
// which the write was based to the state that it produced. Any other step includes a change by another client.
//
// While a write waits for its response, this is not known yet, and the event is kept: see End.
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

// Begin announces a write, because watches are often faster than responses.
func (c *Cache) Begin(key cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flying[key] = nil
}

// End records that the write has completed or failed. It reports whether the watch has delivered
// anything other than its echo meanwhile.
func (c *Cache) End(key cache.ObjectName) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.flying[key] {
		news = !c.isEcho(key, s) || news
	}
	delete(c.flying, key)
	return news
}

// versionOf returns the resourceVersion, or 0 for nil. API servers since Kubernetes 1.35 guarantee that it is an
// increasing number.
func versionOf(object *unstructured.Unstructured) uint64 {
	if object == nil {
		return 0
	}
	number, _ := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	return number
}
