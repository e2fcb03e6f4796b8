// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package breaker keeps an unreachable provider from blocking workers: after the first call that does not get
// through, calls fail at once and watches wait until a probe succeeds.
package breaker

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

// ErrUnreachable is returned, without a call, while the provider is known to be unreachable.
var ErrUnreachable = errors.New("provider is unreachable")

const (
	// startingUp is how long a provider that is back may deny requests that it allowed before: an API server that has
	// just started has not read its roles yet.
	startingUp = 5 * time.Second
	// returnSpread limits the time over which waiting calls to a provider that is back are spread. returnPace is the
	// average time between two of them if there are only a few.
	returnSpread = 2 * time.Second
	returnPace   = 5 * time.Millisecond
)

// DeniedError is a denial by the provider, 401 or 403.
type DeniedError struct{ Err error }

// Error implements error.
func (e *DeniedError) Error() string { return e.Err.Error() }

// Turn returns the delay of one of n waiting calls.
func Turn(n int) time.Duration {
	return rand.N(min(time.Duration(n)*returnPace, returnSpread) + 1) //nolint:gosec // it only spreads load
}

// Options are the options of a Breaker. All are required.
type Options struct {
	Clock clock.WithTicker
	Log   *slog.Logger
	// Every is the time between two probes, and before another attempt of a call that did not get through.
	Every time.Duration
	// Probe calls the provider and bypasses the breaker. A *DeniedError is a response of a reachable provider.
	Probe func(context.Context) error
	// Changed is called when the provider becomes unreachable, and when it is reachable again.
	Changed func(reachable bool)
}

// Breaker is open, and rejects calls, while the provider is unreachable. Safe for concurrent use.
type Breaker struct {
	options Options
	ctx     context.Context // ends the probing

	asking sync.Mutex // serializes the probes of Heed
	mu     sync.Mutex
	open   chan struct{} // closed when the breaker closes again; nil while closed
	queue  int           // number of waiting calls
}

// New returns a closed Breaker.
func New(options Options) *Breaker { return &Breaker{options: options, ctx: context.Background()} }

// Start ends probing with ctx. It must be called before the first call.
func (b *Breaker) Start(ctx context.Context) { b.ctx = ctx }

// Allow returns ErrUnreachable while the breaker is open.
func (b *Breaker) Allow() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open != nil {
		return ErrUnreachable
	}
	return nil
}

// Wait blocks until the breaker is closed or ctx ends. Waiting calls continue one after another.
func (b *Breaker) Wait(ctx context.Context) error {
	b.mu.Lock()
	open := b.open
	if open != nil {
		b.queue++
	}
	b.mu.Unlock()
	if open == nil {
		return ctx.Err()
	}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.queue--
	}()
	select {
	case <-open:
	case <-ctx.Done():
		return ctx.Err()
	}
	b.mu.Lock()
	turn := Turn(b.queue)
	b.mu.Unlock()
	select {
	case <-b.options.Clock.After(turn):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Heed evaluates the error of a call and reports whether the provider is unreachable. A call that exceeded its deadline
// may only have met a slow admission webhook, which must not block other calls, so a probe decides.
func (b *Breaker) Heed(err error) (lost bool) {
	switch {
	case errors.Is(err, ErrUnreachable):
		return true
	case Lost(err):
		b.openBreaker(err)
		return true
	case Overdue(err):
		return !b.probeProvider()
	default:
		return false
	}
}

// probeProvider probes the provider, unless it is known to be unreachable.
func (b *Breaker) probeProvider() bool {
	b.asking.Lock()
	defer b.asking.Unlock()
	if b.Allow() != nil {
		return false
	}
	err := b.options.Probe(b.ctx)
	var denied *DeniedError
	if err == nil || errors.As(err, &denied) {
		return true
	}
	b.openBreaker(err)
	return false
}

// Transport returns a transport that reports every failed attempt to the breaker, including attempts that client-go
// would retry silently. It makes no attempts while the breaker is open.
func (b *Breaker) Transport(next http.RoundTripper) http.RoundTripper { return transport{b, next} }

type transport struct {
	breaker *Breaker
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := t.breaker.Allow(); err != nil {
		return nil, err
	}
	response, err := t.next.RoundTrip(request)
	if err != nil && request.Context().Err() == nil {
		t.breaker.openBreaker(err)
	}
	return response, err
}

// Do makes a call and hides an unavailable provider: it waits until the provider is back, however long that takes, and
// calls again. Other errors, including the end of ctx, are returned. A nil breaker changes nothing.
//
// client-go would retry such calls itself, at growing intervals, and report nothing.
func Do[T any](ctx context.Context, b *Breaker, call func() (T, error)) (T, error) {
	if b == nil {
		return call()
	}
	for {
		if err := b.Wait(ctx); err != nil {
			var none T
			return none, err
		}
		result, err := call()
		if err == nil || ctx.Err() != nil || !b.Heed(err) {
			return result, err
		}
		select { // a probe may get through where this call does not
		case <-b.options.Clock.After(b.options.Every):
		case <-ctx.Done():
		}
	}
}

// openBreaker opens the breaker and starts probing, unless this is already under way.
func (b *Breaker) openBreaker(cause error) {
	b.mu.Lock()
	if b.open != nil || b.ctx.Err() != nil {
		b.mu.Unlock()
		return
	}
	b.open = make(chan struct{})
	b.mu.Unlock()
	b.options.Log.Warn("Provider is unreachable; writes wait until it answers", "err", cause)
	b.options.Changed(false)
	go b.untilBack()
}

func (b *Breaker) untilBack() {
	var refusing time.Time // since when the provider denies every probe
	for {
		err := b.options.Probe(b.ctx)
		var denied *DeniedError
		switch {
		case err == nil:
		case !errors.As(err, &denied):
			refusing = time.Time{}
		case refusing.IsZero():
			refusing = b.options.Clock.Now()
		case b.options.Clock.Since(refusing) >= startingUp:
			err = nil // the denial is permanent, and each call gets it as its response
		}
		if err == nil {
			break
		}
		select {
		case <-b.ctx.Done():
			return
		case <-b.options.Clock.After(b.options.Every):
		}
	}
	b.mu.Lock()
	close(b.open)
	b.open = nil
	b.mu.Unlock()
	b.options.Log.Info("Provider is back")
	b.options.Changed(true)
}
