// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// errUnreachable is returned, without a call, while the provider is known to be unreachable.
var errUnreachable = errors.New("provider is unreachable")

// gate keeps a dead provider from holding workers. The first call that cannot reach it shuts the gate; until a probe
// succeeds, calls fail at once and watches wait. Then whoever waits goes on. Safe for concurrent use.
type gate struct {
	clock   clock.WithTicker
	every   time.Duration
	probe   func(context.Context) error
	changed func(open bool) // called when the provider is lost and when it is back
	log     *slog.Logger
	ctx     context.Context // ends the probing; set before the first call

	mu   sync.Mutex
	shut chan struct{} // closed when the gate opens again; nil while open
}

// pass returns errUnreachable while the gate is shut.
func (g *gate) pass() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		return errUnreachable
	}
	return nil
}

// wait blocks until the gate is open or ctx ends.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return ctx.Err()
	}
	select {
	case <-shut:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fail shuts the gate and starts probing, unless that is under way.
func (g *gate) fail(cause error) {
	g.mu.Lock()
	if g.shut != nil || g.ctx.Err() != nil {
		g.mu.Unlock()
		return
	}
	g.shut = make(chan struct{})
	g.mu.Unlock()
	g.log.Warn("provider is unreachable; writes wait until it answers", "error", cause)
	g.changed(false)
	go g.untilBack()
}

func (g *gate) untilBack() {
	for {
		if err := g.probe(g.ctx); err == nil {
			break
		}
		select {
		case <-g.ctx.Done():
			return
		case <-g.clock.After(g.every):
		}
	}
	g.mu.Lock()
	close(g.shut)
	g.shut = nil
	g.mu.Unlock()
	g.log.Info("provider is back")
	g.changed(true)
}
