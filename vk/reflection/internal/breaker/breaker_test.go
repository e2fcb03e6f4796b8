// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package breaker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

func TestBreaker(t *testing.T) {
	var down atomic.Bool
	var lost, back atomic.Int32
	told := make(chan struct{}, 10)
	down.Store(true)
	b := newBreaker(t, Options{Every: time.Millisecond,
		Probe: func(context.Context) error {
			if down.Load() {
				return errors.New("still down")
			}
			return nil
		},
		Changed: func(open bool) {
			if open {
				back.Add(1)
				told <- struct{}{}
			} else {
				lost.Add(1)
			}
		}})
	require.NoError(t, b.Allow(), "a closed breaker")
	for range 20 { // many workers get the same error
		b.openBreaker(errors.New("connection refused"))
	}
	if err := b.Allow(); !errors.Is(err, ErrUnreachable) {
		t.Errorf("an open breaker says %v", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- b.Wait(t.Context()) }()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Wait(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting with an ended context says %v", err)
	}
	down.Store(false)
	select {
	case err := <-waited:
		assert.NoError(t, err, "waiting until the provider is back")
	case <-time.After(2 * time.Minute):
		t.Fatal("who waits for the provider does not go on")
	}
	select {
	case <-told:
	case <-time.After(2 * time.Minute):
		t.Fatal("nobody is told that the provider is back")
	}
	if err := b.Allow(); err != nil || lost.Load() != 1 || back.Load() != 1 {
		t.Errorf("afterwards: %v; lost %d times, back %d times, want once each", err, lost.Load(), back.Load())
	}
}

// TestBreakerOfAnAPIServerThatStartsTwice checks that an API server that has just started, and still denies requests
// that it will allow a moment later, counts as unreachable until it allows them. If it continues to deny them, it
// counts as reachable. If it stops and starts again, this time begins again.
func TestBreakerOfAnAPIServerThatStartsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, again := time.Now(), 4*time.Second
		b := newBreaker(t, Options{Every: 100 * time.Millisecond,
			Probe: func(context.Context) error {
				if since := time.Since(begun); since > again-time.Second && since < again {
					return errors.New("connection refused")
				}
				return &DeniedError{Err: errors.New("no roles yet")}
			}})
		b.openBreaker(errors.New("connection refused"))
		require.NoError(t, b.Wait(t.Context()))
		if took := time.Since(begun); took < again+startupGrace {
			t.Errorf("the breaker closed after %s: what it denied before it ended counts", took)
		}
	})
}

func TestBreakerOfAStartingAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		denies time.Duration // how long the provider denies requests
		within [2]time.Duration
	}{
		"for a moment": {2 * time.Second, [2]time.Duration{2 * time.Second, 4 * time.Second}},
		"for good":     {time.Hour, [2]time.Duration{startupGrace, startupGrace + 2*time.Second}},
		"not at all":   {0, [2]time.Duration{0, time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				b := newBreaker(t, Options{Every: 100 * time.Millisecond,
					Probe: func(context.Context) error {
						if time.Since(begun) < tc.denies {
							return &DeniedError{Err: apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no roles yet"))}
						}
						return nil
					}})
				if !b.probeProvider() {
					t.Error("a closed breaker is opened by an answer")
				}
				b.openBreaker(errors.New("connection refused"))
				require.NoError(t, b.Wait(t.Context()))
				if took := time.Since(begun); took < tc.within[0] || took > tc.within[1] {
					t.Errorf("the breaker closed after %s, want %s", took, tc.within)
				}
			})
		})
	}
}

// TestReturnIsSpread checks that the calls that have waited for the provider are spread over two seconds. If there are
// only a few, they are made almost immediately.
func TestReturnIsSpread(t *testing.T) {
	for n, within := range map[int][2]time.Duration{2000: {time.Second, returnSpreadPeriod}, 10: {0, 10 * returnPaceInterval}} {
		synctest.Test(t, func(t *testing.T) {
			var down atomic.Bool
			down.Store(true)
			b := newBreaker(t, Options{Every: 100 * time.Millisecond,
				Probe: func(context.Context) error {
					if down.Load() {
						return errors.New("down")
					}
					return nil
				}})
			b.openBreaker(errors.New("connection refused"))
			var all sync.WaitGroup
			for range n {
				all.Go(func() { _ = b.Wait(t.Context()) })
			}
			synctest.Wait()
			begun := time.Now()
			down.Store(false)
			all.Wait()
			if took := time.Since(begun) - b.options.Every; took > within[1] || took < within[0]-b.options.Every {
				t.Errorf("%d came back within %s, want %s", n, took, within)
			}
			if b.queue != 0 {
				t.Errorf("%d still wait", b.queue)
			}
		})
	}
}

// TestDo checks that Do repeats a call only if it fails because the provider is unreachable.
func TestDo(t *testing.T) {
	var probes atomic.Int32
	b := newBreaker(t, Options{Every: time.Millisecond,
		Probe: func(context.Context) error { probes.Add(1); return nil }})
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", errors.New("no"))
	answers := []error{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, &url.Error{Op: "Get", Err: ErrUnreachable}, nil}
	calls := 0
	result, err := Do(t.Context(), b, func() (string, error) { calls++; return "list", answers[calls-1] })
	if result != "list" || err != nil || calls != 3 || probes.Load() != 1 {
		t.Errorf("after two failures of the way: %q, %v, %d calls, %d probes", result, err, calls, probes.Load())
	}
	// These errors must be returned immediately: the provider responds to the probes, so it counts as reachable.
	for _, answer := range []error{forbidden, context.DeadlineExceeded} {
		if _, err := Do(t.Context(), b, func() (string, error) { return "", answer }); !errors.Is(err, answer) {
			t.Errorf("%v became %v", answer, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	lost := &url.Error{Op: "Get", Err: context.Canceled}
	if _, err := Do(ctx, b, func() (string, error) { cancel(); return "", lost }); !errors.Is(err, lost) || b.Allow() != nil {
		t.Errorf("the end of the context became %v and left the breaker %v", err, b.Allow())
	}
	b.options.Probe = func(context.Context) error { return errors.New("still away") }
	if b.Heed(context.DeadlineExceeded) != true || b.Allow() == nil {
		t.Error("neither a call nor a probe is answered, and the breaker is closed")
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Do(soon, b, func() (string, error) { return "", errors.New("called all the same") }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the end of a wait is %v", err)
	}
}

// newBreaker returns a breaker whose probes stop at the end of the test.
func newBreaker(t *testing.T, o Options) *Breaker {
	o.Clock, o.Log = clock.RealClock{}, slog.New(slog.DiscardHandler)
	if o.Changed == nil {
		o.Changed = func(bool) {}
	}
	b := New(o)
	b.Start(t.Context())
	return b
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTransport checks that a request without a response opens the breaker, unless the caller canceled it. While the
// breaker is open, no requests may be sent.
func TestTransport(t *testing.T) {
	tries := 0
	refused := errors.New("connection refused")
	b := newBreaker(t, Options{Every: time.Hour, Probe: func(context.Context) error { return refused }})
	transport := b.Transport(roundTripper(func(*http.Request) (*http.Response, error) { tries++; return nil, refused }))
	send := func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1/", nil)
		require.NoError(t, err)
		_, err = transport.RoundTrip(request) //nolint:bodyclose // there is no answer
		return err
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := send(canceled); !errors.Is(err, refused) || b.Allow() != nil {
		t.Errorf("a request that was given up: %v, then %v", err, b.Allow())
	}
	if err := send(t.Context()); !errors.Is(err, refused) || b.Allow() == nil {
		t.Errorf("a request without an answer: %v, then %v", err, b.Allow())
	}
	if err := send(t.Context()); !errors.Is(err, ErrUnreachable) || tries != 2 {
		t.Errorf("through an open breaker: %v after %d requests, want %v after 2", err, tries, ErrUnreachable)
	}
}
