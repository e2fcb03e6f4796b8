// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/vk/reflection/internal/informer"
)

// A kind is not watched on the provider while the namespace has no objects of it and the provider has no copies. Most
// namespaces have no objects of most kinds, and a watch costs memory on both sides.
const (
	// emptyAfter is how long both clusters must have no object of the kind before the watch ends. It is longer than
	// the pause between two runs of a typical CronJob.
	emptyAfter = 5 * time.Minute
	// emptyRecheck is the interval between checks of the provider for copies, which may have been restored from a
	// backup.
	emptyRecheck = time.Hour
)

// startScope begins to reflect a kind in a namespace. The caller holds m.changing.
func (m *Manager) startScope(r *reflector, t *extension) {
	s := r.newScope(t)
	ctx, cancel := context.WithCancel(t.ctx)
	s.ctx, s.cancel = ctx, cancel
	context.AfterFunc(ctx, func() {
		for _, undo := range s.undo {
			undo()
		}
		s.steps.WakeAll()
	})
	t.set(r.kind.Name, s)
	for _, own := range s.local {
		s.runFor(func() { own.Run(ctx) })
	}
	for _, f := range s.run {
		s.runFor(func() { f(ctx) })
	}
	if !r.kind.Reverse {
		s.runFor(func() { s.follow(ctx) })
	}
}

// stopScope ends the reflection of a kind in a namespace, and returns the scope that is ending, or nil. The copies on
// the provider stay. The caller holds m.changing.
func (m *Manager) stopScope(r *reflector, t *extension) *Scope {
	s := t.set(r.kind.Name, nil)
	if s != nil {
		s.cancel()
		r.mutator.ReleaseNamespace(t.local)
		r.mutator.ReleaseNamespace(t.remote)
	}
	return s
}

// follow waits until the objects of both clusters are known, enqueues all of them, and watches the provider while
// either cluster has objects of the kind. It returns when both clusters have been empty for at least emptyAfter, or at
// once if they are empty from the start. stir starts it again when an object appears.
func (s *Scope) follow(ctx context.Context) {
	if !cache.WaitFor(ctx, "", s.needs...) {
		return
	}
	for ctx.Err() == nil {
		led := s.r.m.leads()
		if !s.empty() || !s.noneRemote(ctx) {
			s.watchRemote(ctx, led)
			continue
		}
		if !s.waitForShared(ctx) {
			return
		}
		if led {
			if !s.mayBegin(ctx, led) {
				return
			}
			s.known()
		}
		s.asleep.Store(true)
		if s.empty() && led == s.r.m.leads() || !s.asleep.CompareAndSwap(true, false) {
			return
		}
	}
}

// waitForShared waits for the caches that every evaluation of the kind needs.
func (s *Scope) waitForShared(ctx context.Context) bool {
	needs := s.r.m.sharedCaches(s.r.kind)
	for _, own := range s.r.informers {
		needs = append(needs, own)
	}
	return cache.WaitFor(ctx, "", needs...)
}

// empty reports whether the namespace has no object of the kind in this cluster.
func (s *Scope) empty() bool { return !s.objects.HasIn(s.Local) }

// noneRemote reports whether the provider has no copies of ours. After an error it returns false, because the watch,
// which is started then, retries.
func (s *Scope) noneRemote(ctx context.Context) bool {
	for _, remote := range s.remote {
		if any, err := remote.Any(ctx); err != nil || any || remote.Len() > 0 {
			return false
		}
	}
	for _, remote := range s.remote {
		remote.KnownEmpty()
	}
	return true
}

// stir starts follow again if it has returned. It is called when an object has appeared, and when the provider must
// be checked again.
func (s *Scope) stir() {
	if s.asleep.CompareAndSwap(true, false) {
		s.runFor(func() { s.follow(s.ctx) })
	}
}

// watchRemote watches the provider until ctx ends, or both sides have been empty for some time. led reports whether
// this replica was already the leader when the watch began: everything read from then on includes all writes of earlier
// leaders.
func (s *Scope) watchRemote(ctx context.Context, led bool) {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	needs := make([]cache.DoneChecker, 0, len(s.remote))
	for _, remote := range s.remote {
		running.Go(func() { remote.Run(ctx) })
		needs = append(needs, remote)
	}
	if !cache.WaitFor(ctx, "", needs...) || !s.waitForShared(ctx) || !s.mayBegin(ctx, led) {
		return
	}
	s.known()
	ticker := s.r.m.options.Clock.NewTicker(emptyAfter)
	defer ticker.Stop()
	for wasEmpty := false; ; {
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
		isEmpty := s.empty() && !containsAny(s.remote)
		if isEmpty && wasEmpty {
			return
		}
		wasEmpty = isEmpty
	}
}

// containsAny reports whether one of the informers has an object.
func containsAny(all []*informer.Informer) bool {
	for _, one := range all {
		if one.Len() > 0 {
			return true
		}
	}
	return false
}

// known marks the scope as ready and, the first time, enqueues every object of both sides. This includes copies whose
// objects were deleted while the provider was not watched.
func (s *Scope) known() {
	if s.ready.Swap(true) {
		return
	}
	s.enqueueAll()
	s.listed.Store(true)
	s.steps.WakeAll()
	for _, r := range s.r.m.all() {
		if own := s.namespace.of(r.kind.Name); own != nil {
			r.handler.Synced(own, &s.r.kind)
		}
	}
	s.r.m.log.Info("Namespace is reflected", "namespace", s.Local, "remoteNamespace", s.Remote, "kind", s.r.kind.Name)
}

// A Manager that stands by keeps the caches that it will need as the leader: the settings, the namespaces, and the
// objects of its node with their copies. It evaluates nothing and writes nothing. Objects that all virtual nodes of a
// provider share are read only after it has become the leader.
//
// Its caches may be out of date in a way that is impossible in a running Manager: they may show a copy that the
// previous leader created, but not yet the object of the copy. Such a copy looks like an orphan, and orphans are
// deleted. So when this replica becomes the leader, each cache is compared with the state that the API servers have
// stored, and nothing is evaluated before they agree.

const (
	// behindFirst and behindMost are the first and the longest delay before a cache that lags behind the API server is
	// checked again.
	behindFirst = 20 * time.Millisecond
	behindMost  = time.Second
	// behindLong is the delay before the log reports that a cache still lags behind the API server.
	behindLong = 5 * time.Second
)

// mayBegin waits until the scope may be evaluated: this replica has taken over, and the caches that were read before
// are known to be current. It returns false if ctx has ended.
func (s *Scope) mayBegin(ctx context.Context, led bool) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.r.m.taken:
	}
	if led {
		return true
	}
	for _, known := range s.informers() {
		if !s.r.m.catchUp(ctx, known.Name()+" in "+s.Local, known.Fence().Behind) {
			return false
		}
	}
	return true
}

// catchUp waits until a cache has caught up. Failed reads are retried.
func (m *Manager) catchUp(ctx context.Context, cache string, behind func(context.Context) (string, error)) bool {
	pause, long := behindFirst, m.options.Clock.After(behindLong)
	for {
		object, err := behind(ctx)
		if err == nil && object == "" {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-long:
			m.log.Warn("Waiting for a cache to catch up with the API server before anything is written", "cache", cache,
				"object", object, "err", err)
		case <-m.options.Clock.After(pause):
		}
		pause = min(2*pause, behindMost)
	}
}
