// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package pinger probes an API server periodically, and decides whether it is available.
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
	// lostPings is how many pings in a row must be lost before an API server counts as unreachable. With a smaller
	// number, a short disturbance would take down a node or endpoints; a larger number delays the detection.
	lostPings = 3
	// retryDelay is the delay after a lost ping. It is short, so that a failure is confirmed within seconds instead
	// of several intervals.
	retryDelay = time.Second
	// downInterval is the interval of pings while a server is down. It is short, because users wait for the server to
	// return.
	downInterval = 2 * time.Second
)

// errNoAnswerYet is the reason why a server counts as unreachable before the first ping.
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
	down      error // why the server is unreachable, or nil while it is reachable
	listeners []func()
}

// New returns a pinger. Run sends the pings. The server counts as unreachable until the first successful ping.
//
// If the interval is 0, no pings are sent, and the server counts as reachable.
func New(ping func(context.Context) error, interval, timeout time.Duration, clk clock.Clock) *Pinger {
	p := &Pinger{ping: ping, interval: interval, timeout: timeout, clock: clk, settled: make(chan struct{})}
	if interval > 0 {
		p.down = errNoAnswerYet
	} else {
		close(p.settled)
	}
	return p
}

// Settled returns a channel that is closed when the state of the server is known: after the first successful ping, or
// after lostPings pings in a row were lost. Before that, the state is only an assumption, and must not overwrite a
// state that an earlier process has reported.
func (p *Pinger) Settled() <-chan struct{} { return p.settled }

// Unreachable returns the reason why the server counts as down, or nil if it is up.
func (p *Pinger) Unreachable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// Subscribe registers a function that is called whenever the server becomes reachable or unreachable. It is called in
// the goroutine that pings, and must not block.
func (p *Pinger) Subscribe(changed func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(p.listeners, changed)
}

// Run sends pings until ctx is done.
func (p *Pinger) Run(ctx context.Context) {
	if p.interval == 0 {
		return
	}
	for ctx.Err() == nil {
		next := p.recordResult(p.pingOnce(ctx))
		select {
		case <-ctx.Done():
		case <-p.clock.After(next):
		}
	}
}

// pingOnce sends one ping, limited by the timeout.
func (p *Pinger) pingOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.ping(ctx)
}

// recordResult stores the result of a ping, and returns the delay until the next one.
func (p *Pinger) recordResult(err error) time.Duration {
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
				p.down = err // this error is kept while the server is down, so that the reported reason does not change
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

// maxAnswer limits how much of a response is read, in bytes. A healthy server returns "ok".
const maxAnswer = 4 << 10

// Livez returns a function that requests /livez from an API server with the given transport, which adds the
// credentials. The errors of the function describe the state of the server. An overloaded server counts as alive.
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
		defer response.Body.Close() //nolint:errcheck // an error when closing is harmless, because the body was read
		body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		if err != nil {
			return fmt.Errorf("does not answer: pinging %s, %w", target, err)
		}
		return evaluateResponse(target, response.StatusCode, body)
	}
}

// evaluateResponse returns an error if the response to a ping shows that the server is not healthy.
func evaluateResponse(target string, code int, body []byte) error {
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
