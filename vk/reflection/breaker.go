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

// breaker keeps a dead provider from holding workers. The first call, list or watch that cannot reach it opens the breaker;
// until a probe succeeds, calls fail at once and watches wait. Then whoever waits goes on. Safe for concurrent use.
type breaker struct {
	clock   clock.WithTicker
	every   time.Duration
	probe   func(context.Context) error
	changed func(reachable bool) // called when the provider is lost and when it is back
	log     *slog.Logger
	ctx     context.Context // ends the probing; set before the first call

	asking sync.Mutex // one doubt is settled at a time
	mu     sync.Mutex
	open   chan struct{} // closed when the breaker closes again; nil while closed
	queue  int           // how many wait
}

// pass returns errUnreachable while the breaker is open.
func (b *breaker) pass() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open != nil {
		return errUnreachable
	}
	return nil
}

// wait blocks until the breaker is closed or ctx ends. Those who waited together go on one after another.
func (b *breaker) wait(ctx context.Context) error {
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
	turn := turnOf(b.queue)
	b.mu.Unlock()
	select {
	case <-b.clock.After(turn):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// heed draws the conclusion from an error of a call and reports whether the way to the provider is lost. Who passed a
// deadline may only have met with a slow admission webhook, and nobody else is to wait for that: a probe tells.
func (b *breaker) heed(err error) (lost bool) {
	switch {
	case errors.Is(err, errUnreachable):
		return true
	case lostWay(err):
		b.fail(err)
		return true
	case overdue(err):
		return !b.answers()
	default:
		return false
	}
}

// answers probes the provider, unless it is known to be lost.
func (b *breaker) answers() bool {
	b.asking.Lock()
	defer b.asking.Unlock()
	if b.pass() != nil {
		return false
	}
	err := b.probe(b.ctx)
	var denied *deniedError
	if err == nil || errors.As(err, &denied) {
		return true
	}
	b.fail(err)
	return false
}

// way is the transport to the provider. It tells the breaker of every attempt that fails, also of those that client-go would
// repeat by itself without a word, and makes none while the breaker is open.
type way struct {
	breaker *breaker
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w way) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := w.breaker.pass(); err != nil {
		return nil, err
	}
	response, err := w.next.RoundTrip(request)
	if err != nil && request.Context().Err() == nil {
		w.breaker.fail(err)
	}
	return response, err
}

// reaching makes a call of which nobody needs to hear that the provider is away: it waits for the return, however long
// that takes, and calls again. Other errors, the end of ctx among them, are returned. A nil breaker changes nothing.
//
// client-go would retry such calls itself, further and further apart, and tell nobody.
func reaching[T any](ctx context.Context, b *breaker, call func() (T, error)) (T, error) {
	if b == nil {
		return call()
	}
	for {
		if err := b.wait(ctx); err != nil {
			var none T
			return none, err
		}
		result, err := call()
		if err == nil || ctx.Err() != nil || !b.heed(err) {
			return result, err
		}
		select { // a probe may get through where this call does not
		case <-b.clock.After(b.every):
		case <-ctx.Done():
		}
	}
}

// fail opens the breaker and starts probing, unless that is under way.
func (b *breaker) fail(cause error) {
	b.mu.Lock()
	if b.open != nil || b.ctx.Err() != nil {
		b.mu.Unlock()
		return
	}
	b.open = make(chan struct{})
	b.mu.Unlock()
	b.log.Warn("provider is unreachable; writes wait until it answers", "error", cause)
	b.changed(false)
	go b.untilBack()
}

func (b *breaker) untilBack() {
	var refusing time.Time // since when it does nothing but deny
	for {
		err := b.probe(b.ctx)
		var denied *deniedError
		switch {
		case err == nil:
		case !errors.As(err, &denied):
			refusing = time.Time{}
		case refusing.IsZero():
			refusing = b.clock.Now()
		case b.clock.Since(refusing) >= startingUp:
			err = nil // it means it, and each call is told
		}
		if err == nil {
			break
		}
		select {
		case <-b.ctx.Done():
			return
		case <-b.clock.After(b.every):
		}
	}
	b.mu.Lock()
	close(b.open)
	b.open = nil
	b.mu.Unlock()
	b.log.Info("provider is back")
	b.changed(true)
}
