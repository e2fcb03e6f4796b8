// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// standby prepares a fast takeover while another replica is the leader: it connects to the provider, compiles plugins
// and fills caches. It is safe for concurrent use.
type standby struct {
	k     *kubelet
	start sync.Once
	ended chan struct{} // closed when the preparation has ended; nil before beginPreparation is called

	ctx    context.Context //nolint:containedctx // of everything that is prepared
	cancel context.CancelFunc

	mu       sync.Mutex
	prepared *active
	over     bool // the preparation is no longer needed
}

func (k *kubelet) newStandby(ctx context.Context) *standby {
	s := &standby{k: k}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// beginPreparation starts the preparation unless it was started before. It is called when another replica holds the
// lease.
func (s *standby) beginPreparation() {
	s.start.Do(func() {
		s.ended = make(chan struct{})
		go func() {
			defer close(s.ended)
			s.prepareActive()
		}()
	})
}

// prepareActive prepares the parts of a virtual kubelet and runs them until the preparation is no longer needed.
// Failures are retried.
func (s *standby) prepareActive() {
	logger := log.FromContext(s.ctx)
	for s.ctx.Err() == nil {
		a, err := s.k.newActive(s.ctx, true)
		if err == nil {
			a.startParts(s.ctx)
			if s.offerPrepared(a) {
				<-a.ctx.Done()
			}
			if !s.withdrawPrepared(a) {
				return // this replica is now the leader and uses the prepared parts
			}
			err = a.stopParts()
		}
		if s.ctx.Err() != nil {
			return
		}
		logger.Error(err, "This replica cannot stand by yet, retrying")
		if err != nil {
			s.k.ready.waitFor(err.Error())
		}
		select {
		case <-s.ctx.Done():
		case <-time.After(activateRetryDelay):
		}
	}
}

// offerPrepared stores the prepared parts for takePrepared. It returns false if the preparation is no longer needed.
func (s *standby) offerPrepared(a *active) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prepared = a
	if s.over {
		return false
	}
	s.k.ready.setActive(a)
	return true
}

// withdrawPrepared removes prepared parts that have failed or are not needed. It returns false if takePrepared has
// already returned them.
func (s *standby) withdrawPrepared(a *active) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prepared != a {
		return false
	}
	s.prepared = nil
	s.k.ready.setActive(nil)
	return true
}

// takePrepared ends the preparation and returns the prepared parts, or nil if there are none.
func (s *standby) takePrepared() *active {
	s.mu.Lock()
	a := s.prepared
	s.over, s.prepared = true, nil
	s.mu.Unlock()
	if a != nil && a.ctx.Err() == nil {
		return a
	}
	s.stopPreparation()
	if a != nil { // the prepared parts have just failed
		log.FromContext(s.ctx).Error(a.stopParts(), "The standby caches cannot be used, starting without them")
	}
	return nil
}

// stopPreparation ends the preparation, stops prepared parts that were not taken, and waits until they have stopped.
func (s *standby) stopPreparation() {
	s.cancel()
	s.beginPreparation() // makes sure that s.ended is closed even if the preparation was never started
	<-s.ended
}
