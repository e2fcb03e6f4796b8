// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// errUnreachable is returned, without a call, while the provider is known to be unreachable.
var errUnreachable = errors.New("provider is unreachable")

const (
	// startingUp is how long a provider that is back may deny what it allowed before: an API server that has just started has
	// not read its roles yet.
	startingUp = 5 * time.Second
	// returnSpread bounds the time over which all that waited for the provider comes back to it, returnPace is how far apart
	// two of them are, on average, when they are few.
	returnSpread = 2 * time.Second
	returnPace   = 5 * time.Millisecond
)

// deniedError is an answer of the provider that says who may not ask, 401 or 403.
type deniedError struct{ error }

// turnOf returns after which time one of n that come back is to come.
func turnOf(n int) time.Duration {
	return rand.N(min(time.Duration(n)*returnPace, returnSpread) + 1) //nolint:gosec // it only spreads load
}

// gate keeps a dead provider from holding workers. The first call, list or watch that cannot reach it shuts the gate;
// until a probe succeeds, calls fail at once and watches wait. Then whoever waits goes on. Safe for concurrent use.
type gate struct {
	clock   clock.WithTicker
	every   time.Duration
	probe   func(context.Context) error
	changed func(open bool) // called when the provider is lost and when it is back
	log     *slog.Logger
	ctx     context.Context // ends the probing; set before the first call

	asking sync.Mutex // one doubt is settled at a time
	mu     sync.Mutex
	shut   chan struct{} // closed when the gate opens again; nil while open
	queue  int           // how many wait
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

// wait blocks until the gate is open or ctx ends. Those who waited together go on one after another.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	shut := g.shut
	if shut != nil {
		g.queue++
	}
	g.mu.Unlock()
	if shut == nil {
		return ctx.Err()
	}
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.queue--
	}()
	select {
	case <-shut:
	case <-ctx.Done():
		return ctx.Err()
	}
	g.mu.Lock()
	turn := turnOf(g.queue)
	g.mu.Unlock()
	select {
	case <-g.clock.After(turn):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// heed draws the conclusion from an error of a call and reports whether the way to the provider is lost. Who passed a
// deadline may only have met with a slow admission webhook, and nobody else is to wait for that: a probe tells.
func (g *gate) heed(err error) (lost bool) {
	switch {
	case errors.Is(err, errUnreachable):
		return true
	case lostWay(err):
		g.fail(err)
		return true
	case overdue(err):
		return !g.answers()
	default:
		return false
	}
}

// answers probes the provider, unless it is known to be lost.
func (g *gate) answers() bool {
	g.asking.Lock()
	defer g.asking.Unlock()
	if g.pass() != nil {
		return false
	}
	err := g.probe(g.ctx)
	var denied *deniedError
	if err == nil || errors.As(err, &denied) {
		return true
	}
	g.fail(err)
	return false
}

// way is the transport to the provider. It tells the gate of every attempt that fails, also of those that client-go would
// repeat by itself without a word, and makes none while the gate is shut.
type way struct {
	gate *gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w way) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := w.gate.pass(); err != nil {
		return nil, err
	}
	response, err := w.next.RoundTrip(request)
	if err != nil && request.Context().Err() == nil {
		w.gate.fail(err)
	}
	return response, err
}

// reaching makes a call of which nobody needs to hear that the provider is away: it waits for the return, however long
// that takes, and calls again. Other errors, the end of ctx among them, are returned. A nil gate changes nothing.
//
// client-go would retry such calls itself, further and further apart, and tell nobody.
func reaching[T any](ctx context.Context, g *gate, call func() (T, error)) (T, error) {
	if g == nil {
		return call()
	}
	for {
		if err := g.wait(ctx); err != nil {
			var none T
			return none, err
		}
		result, err := call()
		if err == nil || ctx.Err() != nil || !g.heed(err) {
			return result, err
		}
		select { // a probe may get through where this call does not
		case <-g.clock.After(g.every):
		case <-ctx.Done():
		}
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
	var refusing time.Time // since when it does nothing but deny
	for {
		err := g.probe(g.ctx)
		var denied *deniedError
		switch {
		case err == nil:
		case !errors.As(err, &denied):
			refusing = time.Time{}
		case refusing.IsZero():
			refusing = g.clock.Now()
		case g.clock.Since(refusing) >= startingUp:
			err = nil // it means it, and each call is told
		}
		if err == nil {
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
