// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

func TestGate(t *testing.T) {
	var down atomic.Bool
	var lost, back atomic.Int32
	told := make(chan struct{}, 10)
	down.Store(true)
	g := &gate{clock: clock.RealClock{}, every: time.Millisecond, ctx: t.Context(), log: slog.New(slog.DiscardHandler),
		probe: func(context.Context) error {
			if down.Load() {
				return errors.New("still down")
			}
			return nil
		},
		changed: func(open bool) {
			if open {
				back.Add(1)
				told <- struct{}{}
			} else {
				lost.Add(1)
			}
		}}
	if err := g.pass(); err != nil {
		t.Fatalf("an open gate says %v", err)
	}
	for range 20 { // many workers notice
		g.fail(errors.New("connection refused"))
	}
	if err := g.pass(); !errors.Is(err, errUnreachable) {
		t.Errorf("a shut gate says %v", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- g.wait(t.Context()) }()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.wait(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting with an ended context says %v", err)
	}
	down.Store(false)
	select {
	case err := <-waited:
		if err != nil {
			t.Errorf("waiting until the provider is back says %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("who waits for the provider does not go on")
	}
	select {
	case <-told:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody is told that the provider is back")
	}
	if err := g.pass(); err != nil || lost.Load() != 1 || back.Load() != 1 {
		t.Errorf("afterwards: %v; lost %d times, back %d times, want once each", err, lost.Load(), back.Load())
	}
}

func TestClassify(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://127.0.0.1:1", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
	resource := schema.GroupResource{Resource: "services"}
	for _, tc := range []struct {
		err   error
		class class
		shuts bool
	}{
		{refused, classUnreachable, true},
		{context.DeadlineExceeded, classUnreachable, true},
		{errUnreachable, classUnreachable, false},
		{apierrors.NewServiceUnavailable("x"), classUnreachable, false},
		{apierrors.NewTooManyRequestsError("x"), classUnreachable, false},
		{apierrors.NewUnauthorized("x"), classUnreachable, false},
		{apierrors.NewConflict(resource, "x", errors.New("y")), classConflict, false},
		{apierrors.NewForbidden(resource, "x", errors.New("y")), classRefused, false},
		{apierrors.NewBadRequest("x"), classRefused, false},
		{&foreignError{"services", "shop", "web"}, classForeign, false},
		{&policyError{"x"}, classInput, false},
		{&quarantineError{4}, classQuarantine, false},
	} {
		if got, _ := classify(tc.err); got != tc.class || shutsGate(tc.err) != tc.shuts {
			t.Errorf("%v: class %s, shuts the gate %t; want %s, %t", tc.err, got, shutsGate(tc.err), tc.class, tc.shuts)
		}
	}
}
