// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package breaker prevents an unreachable provider from blocking workers. After a call could not reach the provider,
// all other calls fail immediately, and watches wait, until a probe succeeds.
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

	"github.com/refract-project/refract/internal/apifailure"
)

// ErrUnreachable is returned for calls that are not made because the provider is known to be unreachable.
var ErrUnreachable = errors.New("provider is unreachable")

const (
	// startupGrace is how long a provider that has become reachable may deny requests that it allowed before: an API
	// server that has just started has not read its roles yet.
	startupGrace = 5 * time.Second
	// returnSpreadPeriod limits the time over which waiting calls are spread after the provider has become reachable.
	// returnPaceInterval is the average time between two of these calls if only a few are waiting.
	returnSpreadPeriod = 2 * time.Second
	returnPaceInterval = 5 * time.Millisecond
)

// DeniedError means that the provider responded but denied access, with the status 401 or 403.
type DeniedError struct{ Err error }

// Error returns the message of the wrapped error.
func (e *DeniedError) Error() string { return e.Err.Error() }

// Turn returns the random delay of one of n calls that have waited for the provider, so that they are not made all at
// once.
func Turn(n int) time.Duration {
	return rand.N(min(time.Duration(n)*returnPaceInterval, returnSpreadPeriod) + 1) //nolint:gosec // it only spreads load
}

// Options are the options of a Breaker. All of them are required.
type Options struct {
	Clock clock.WithTicker
	Log   *slog.Logger
	// Every is the time between two probes. Do also waits this long before it repeats a call that did not reach the
	// provider.
	Every time.Duration
	// Probe sends a request to the provider that bypasses the breaker. If it returns a *DeniedError, the provider is
	// reachable.
	Probe func(context.Context) error
	// Changed is called when the provider becomes unreachable, and when it is reachable again.
	Changed func(reachable bool)
}

// Breaker rejects calls while the provider is unreachable. It is then open. It is safe for concurrent use.
type Breaker struct {
	options Options

	asking sync.Mutex // serializes the probes by Heed
	mu     sync.Mutex
	ctx    context.Context // the probes end when it is done
	open   chan struct{}   // closed when the provider is reachable again; nil if the breaker is not open
	queue  int             // number of waiting calls
}

// New returns a closed Breaker.
func New(options Options) *Breaker { return &Breaker{options: options, ctx: context.Background()} }

// Start makes the probes end when ctx is done. Without Start, probes continue until one succeeds.
func (b *Breaker) Start(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctx = ctx
}

// probing returns the context of the probes.
func (b *Breaker) probing() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ctx
}

// Allow returns ErrUnreachable while the breaker is open.
func (b *Breaker) Allow() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open != nil {
		return ErrUnreachable
	}
	return nil
}

// Wait blocks until the breaker is closed or ctx is done. When the breaker has closed, each waiting call returns after
// its own random delay (see Turn).
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

// Heed evaluates the error of a call, and reports whether the provider is unreachable. If the call exceeded its
// deadline, Heed sends a probe to find out: the cause may be a slow admission webhook, which must not block other
// calls.
func (b *Breaker) Heed(err error) (lost bool) {
	switch {
	case errors.Is(err, ErrUnreachable):
		return true
	case Lost(err):
		b.openBreaker(err)
		return true
	case apifailure.IsOverdue(err):
		return !b.probeProvider()
	default:
		return false
	}
}

// probeProvider probes the provider, unless it is already known to be unreachable. It reports whether the provider is
// reachable.
func (b *Breaker) probeProvider() bool {
	b.asking.Lock()
	defer b.asking.Unlock()
	if b.Allow() != nil {
		return false
	}
	err := b.options.Probe(b.probing())
	var denied *DeniedError
	if err == nil || errors.As(err, &denied) {
		return true
	}
	b.openBreaker(err)
	return false
}

// Transport returns a transport that opens the breaker when a request gets no response, unless the caller has canceled
// the request. This includes requests that client-go would retry silently. While the breaker is open, the transport
// sends no requests.
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

// Do makes a call, and repeats it if the provider is unreachable. Before each attempt, it waits until the provider is
// reachable, no matter how long this takes. It returns other errors immediately, including the error of ctx. If b is
// nil, the call is made only once.
//
// Without Do, client-go would retry the calls at growing intervals, and would not report errors.
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
		select { // this delay is needed because a probe may succeed even though the call fails
		case <-b.options.Clock.After(b.options.Every):
		case <-ctx.Done():
		}
	}
}

// openBreaker opens the breaker and starts probing, unless the breaker is already open.
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
	var refusing time.Time // time since which every probe was denied
	for {
		err := b.options.Probe(b.probing())
		var denied *DeniedError
		switch {
		case err == nil:
		case !errors.As(err, &denied):
			refusing = time.Time{}
		case refusing.IsZero():
			refusing = b.options.Clock.Now()
		case b.options.Clock.Since(refusing) >= startupGrace:
			err = nil // The denials continue. The breaker is closed, so that callers get the provider's denial.
		}
		if err == nil {
			break
		}
		select {
		case <-b.probing().Done():
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
