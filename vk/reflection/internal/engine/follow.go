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
	// emptyAfter is how long both sides are empty before the watch ends. It is longer than the pause between two runs
	// of a typical Job.
	emptyAfter = 5 * time.Minute
	// emptyRecheck is the interval between checks of the provider for copies, which may have been restored from a
	// backup.
	emptyRecheck = time.Hour
)

// follow waits until both sides are known, enqueues every object, and watches the provider as long as there is
// something to watch. It returns when there is nothing to watch, and stir calls it again.
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
func (s *Scope) empty() bool { return !s.objects.HasIn(s.namespace.local) }

// noneRemote reports whether the provider has no copies of ours. On errors it returns false: the watch retries.
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

// stir restarts a follow that has returned: an object has appeared, or it is time to check the provider again.
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
	s.steps.wakeAll()
	for _, r := range s.r.m.all() {
		if own := s.namespace.of(r.kind.Name); own != nil {
			r.handler.Synced(own, &s.r.kind)
		}
	}
	s.r.m.log.Info("Namespace is reflected", "namespace", s.namespace.local, "remoteNamespace", s.namespace.remote, "kind", s.r.kind.Name)
}
