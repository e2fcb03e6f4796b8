// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package pinger probes an API server periodically, and decides when it is unavailable.
package pinger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/refract-project/refract/internal/connection"
)

const (
	// lostPings in a row make an API server unreachable. Fewer would let one
	// dropped packet take a node or endpoints down, more delay what users wait for.
	lostPings = 3
	// retryDelay after a lost ping: the suspicion is settled within seconds
	// instead of intervals.
	retryDelay = time.Second
	// downInterval of pings while a server is down: users wait for its return.
	downInterval = 2 * time.Second
)

// errNoAnswerYet is why a server is unreachable before the first ping.
var errNoAnswerYet = errors.New("has not answered yet")

// Pinger probes one API server.
// All methods are safe for concurrent use.
type Pinger struct {
	ping              func(context.Context) error
	interval, timeout time.Duration
	clock             clock.Clock

	settled   chan struct{}
	mu        sync.Mutex
	lost      int
	down      error // nil: reachable
	listeners []func()
}

// New returns a pinger; Run starts it. Until its first
// successful ping the server counts as unreachable.
//
// An interval of 0 switches pings off: the server then counts as reachable.
func New(ping func(context.Context) error, interval, timeout time.Duration, clk clock.Clock) *Pinger {
	p := &Pinger{ping: ping, interval: interval, timeout: timeout, clock: clk, settled: make(chan struct{})}
	if interval > 0 {
		p.down = errNoAnswerYet
	} else {
		close(p.settled)
	}
	return p
}

// Settled is closed once it is known whether the server is up: after the
// first response, or a few seconds without one. Its state
// before that is a guess, which must not replace the result of a previous process.
func (p *Pinger) Settled() <-chan struct{} { return p.settled }

// Unreachable returns why the server counts as down; nil is up.
func (p *Pinger) Unreachable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// Subscribe has changed called after every change between up and down, from
// the goroutine that pings: it must not block.
func (p *Pinger) Subscribe(changed func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(p.listeners, changed)
}

// Run pings until ctx ends.
func (p *Pinger) Run(ctx context.Context) {
	if p.interval == 0 {
		return
	}
	for ctx.Err() == nil {
		next := p.record(p.once(ctx))
		select {
		case <-ctx.Done():
		case <-p.clock.After(next):
		}
	}
}

// once pings once, within the timeout.
func (p *Pinger) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.ping(ctx)
}

// record takes the result of a ping and returns when the next one is due.
func (p *Pinger) record(err error) time.Duration {
	p.mu.Lock()
	was, next := p.down, p.interval
	switch {
	case err == nil:
		p.lost, p.down = 0, nil
	default:
		p.lost++
		next = min(p.interval, retryDelay)
		if p.lost >= lostPings {
			next = min(p.interval, downInterval)
			if was == nil || errors.Is(was, errNoAnswerYet) {
				p.down = err // the first reason stays: it does not change with every attempt
			}
		}
	}
	if errors.Is(was, errNoAnswerYet) && !errors.Is(p.down, errNoAnswerYet) {
		close(p.settled)
	}
	listeners, changed := p.listeners, was != p.down
	p.mu.Unlock()
	if changed {
		for _, notify := range listeners {
			notify()
		}
	}
	return next
}

// maxAnswer of a ping that is read: a server that lives says "ok".
const maxAnswer = 4 << 10

// Livez pings an API server with the credentials of transport. The errors are
// sentences about the server. An overloaded server counts as alive.
func Livez(server *url.URL, transport http.RoundTripper) func(context.Context) error {
	target := server.JoinPath("livez").String()
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return err
		}
		response, err := transport.RoundTrip(request)
		if wrong := (*connection.WrongClusterError)(nil); errors.As(err, &wrong) {
			return wrong
		}
		if err != nil {
			return fmt.Errorf("does not answer: pinging %s, %w", target, err)
		}
		defer response.Body.Close() //nolint:errcheck // the answer was read
		body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		if err != nil {
			return fmt.Errorf("does not answer: pinging %s, %w", target, err)
		}
		return verdict(target, response.StatusCode, body)
	}
}

// verdict on the answer to a ping.
func verdict(target string, code int, body []byte) error {
	switch {
	case code == http.StatusOK && strings.TrimSpace(string(body)) == "ok", code == http.StatusTooManyRequests:
		return nil
	case code == http.StatusOK:
		return fmt.Errorf("does not answer: %s returned %.40q instead of ok: another service responds there, check the server of the kubeconfig", target, body)
	case code == http.StatusUnauthorized:
		return fmt.Errorf("does not accept our credentials (401 from %s): renew the kubeconfig", target)
	case code == http.StatusForbidden:
		return fmt.Errorf("denies access (403 from %s): check that the peering still exists, or allow this identity to get /livez there", target)
	default:
		return fmt.Errorf("is failing: %s returned %d %s", target, code, http.StatusText(code))
	}
}
