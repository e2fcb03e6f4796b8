// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Key names an object of this cluster; the copy has the same name in the remote namespace.
type Key = cache.ObjectName

// writeGrace is how long the answer to a write is preferred to a cache that has not caught up. Longer would hold on to
// an answer whose watch event came before it; shorter would write twice when the watch is slow.
const writeGrace = 10 * time.Second

// mutationCache remembers what the API server answered to our writes until the watch has delivered it. It makes a reconcile
// see its own writes, and lets the event that is only their echo be ignored. Safe for concurrent use.
type mutationCache struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	last  map[Key]written
	// flying are the writes that wait for their answer, each with what the watch has delivered meanwhile.
	flying map[Key][]step
	// gone are objects that are known to be deleted, lately: the answer to a write may come after that, and neither it nor
	// a cache that is behind must bring them back. ring forgets the oldest; it grows when it is needed, for there is a cache per kind and namespace.
	gone map[types.UID]bool
	ring []types.UID
	next int
}

// goneMemory is how many deletions may be delivered while a write waits for its answer. More costs memory, fewer would
// overlook that an object is gone until the next event.
const goneMemory = 512

type written struct {
	object  *unstructured.Unstructured // nil: deleted by us
	uid     types.UID
	base    uint64 // version of what the write was decided on; 0: there was nothing
	version uint64 // of the answer
	at      time.Time
}

// step is an event of the watch: from one version to another.
type step struct {
	uid      types.UID
	from, to uint64
	deleted  bool
}

func newMutationCache(c clock.PassiveClock) *mutationCache {
	return &mutationCache{clock: c, last: map[Key]written{}, flying: map[Key][]step{}, gone: map[types.UID]bool{}}
}

// wrote records the answer to a create, update, apply or patch, and what was known before: nil for nothing.
func (l *mutationCache) wrote(key Key, before, object *unstructured.Unstructured) {
	l.put(key, written{object: object, uid: object.GetUID(), base: version(before), version: version(object)})
}

// deleted records that the deletion of the object was accepted.
func (l *mutationCache) deleted(key Key, object *unstructured.Unstructured) {
	l.put(key, written{uid: object.GetUID(), version: version(object)})
}

func (l *mutationCache) put(key Key, entry written) {
	entry.at = l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone[entry.uid] {
		delete(l.last, key)
		return
	}
	l.last[key] = entry
}

// noteGone remembers a deletion, or that the object is seen (again).
func (l *mutationCache) noteGone(uid types.UID, gone bool) {
	switch {
	case !gone:
		delete(l.gone, uid)
	case !l.gone[uid]:
		if l.next == len(l.ring) {
			l.ring = append(l.ring, "")
		}
		delete(l.gone, l.ring[l.next])
		l.gone[uid], l.ring[l.next] = true, uid
		l.next = (l.next + 1) % goneMemory
	}
}

// vanished records that the API server does not have the object, whatever the watch has delivered.
func (l *mutationCache) vanished(key Key, uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteGone(uid, true)
	if l.last[key].uid == uid {
		delete(l.last, key)
	}
}

// isGone reports whether it is known, by the watch or otherwise, that the object was deleted lately.
func (l *mutationCache) isGone(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone[uid]
}

// view returns the newer of the cached object and our last write. going is true while our deletion of the cached
// object has not been delivered.
func (l *mutationCache) view(key Key, cached *unstructured.Unstructured) (object *unstructured.Unstructured, going bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cached != nil && l.gone[cached.GetUID()] {
		cached = nil
	}
	entry, ok := l.last[key]
	if !ok {
		return cached, false
	}
	if entry.known(version(cached)) || l.clock.Since(entry.at) > writeGrace {
		delete(l.last, key)
		return cached, false
	}
	if entry.object == nil {
		return cached, cached != nil
	}
	return entry.object, false
}

// known reports whether a state of that version has the write in it. All objects of a resource share their numbers, so that
// is so of another object under the same name, too; one of an earlier version is not there any more.
func (w written) known(version uint64) bool {
	return version > w.version || version == w.version && w.object != nil
}

// unobserved forgets the writes that the watch should have delivered long ago, and returns those that are not in the cache
// either. They fell into a gap of the watch: what it begins with anew does not tell of what came and went meanwhile.
func (l *mutationCache) unobserved(cached func(Key) *unstructured.Unstructured) (keys []Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, entry := range l.last {
		if l.clock.Since(entry.at) <= writeGrace {
			continue
		}
		delete(l.last, key)
		if present := cached(key); !entry.known(version(present)) && (present != nil || entry.object != nil) {
			keys = append(keys, key)
		}
	}
	return keys
}

// seen takes an event of the watch and reports whether it only echoes our last write: the step from the state on which
// the write was decided to the state that it made. Anything else has a change of somebody else in it.
//
// While a write waits for its answer that is not known yet, and the event is kept: end tells.
func (l *mutationCache) seen(key Key, before, object *unstructured.Unstructured, deleted bool) (echo bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteGone(object.GetUID(), deleted)
	s := step{uid: object.GetUID(), from: version(before), to: version(object), deleted: deleted}
	if kept, waits := l.flying[key]; waits {
		l.flying[key] = append(kept, s)
		return true
	}
	return l.echoes(key, s)
}

func (l *mutationCache) echoes(key Key, s step) bool {
	entry, ok := l.last[key]
	if !ok {
		return false
	}
	if s.deleted && s.uid == entry.uid || !s.deleted && entry.known(s.to) {
		delete(l.last, key)
	}
	return !s.deleted && entry.object != nil && s.uid == entry.uid && s.to == entry.version && s.from == entry.base
}

// begin announces a write: watches are often faster than answers.
func (l *mutationCache) begin(key Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying[key] = nil
}

// end says that the write has its answer, which is recorded, or has failed. It reports whether the watch has delivered
// something else than its echo meanwhile.
func (l *mutationCache) end(key Key) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.flying[key] {
		news = !l.echoes(key, s) || news
	}
	delete(l.flying, key)
	return news
}

// version reads the resourceVersion (0 of nothing), which API servers since Kubernetes 1.35 promise to be a growing number.
func version(object *unstructured.Unstructured) uint64 {
	if object == nil {
		return 0
	}
	number, _ := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	return number
}
