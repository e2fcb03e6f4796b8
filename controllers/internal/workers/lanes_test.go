// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func requestOf(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// start returns running lanes, and a function that stops them and waits until they have stopped.
func start(t *testing.T, inner reconcile.Func) (lanes *Lanes, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	lanes = NewLanes(inner)
	ended := make(chan error)
	go func() { ended <- lanes.Start(ctx) }()
	return lanes, func() {
		t.Helper()
		cancel()
		assert.NoError(t, <-ended)
	}
}

func ask(t *testing.T, lanes *Lanes, name string) {
	t.Helper()
	if result, err := lanes.Reconcile(t.Context(), requestOf(name)); err != nil || result != (reconcile.Result{}) {
		t.Fatalf("result = %v, error = %v", result, err)
	}
}

func TestNobodyWaitsForAnother(t *testing.T) {
	const silent = 100
	var waiting atomic.Int32
	done := make(chan struct{})
	lanes, end := start(t, func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		if request.Name == "alive" {
			close(done)
			return reconcile.Result{}, nil
		}
		waiting.Add(1)
		defer waiting.Add(-1)
		<-ctx.Done()
		return reconcile.Result{}, ctx.Err()
	})
	for i := range silent {
		ask(t, lanes, fmt.Sprint("silent-", i))
	}
	ask(t, lanes, "alive")
	<-done
	end()
	if n := waiting.Load(); n != 0 {
		t.Errorf("%d are still at work", n)
	}
}

func TestOneAtATimeAndNoRequestIsLost(t *testing.T) {
	var working, times atomic.Int32
	begun, goOn, done := make(chan struct{}, 10), make(chan struct{}), make(chan struct{})
	lanes, end := start(t, func(context.Context, reconcile.Request) (reconcile.Result, error) {
		if working.Add(1) > 1 {
			t.Error("two work on the same object")
		}
		begun <- struct{}{}
		<-goOn
		working.Add(-1)
		if times.Add(1) == 2 {
			close(done)
		}
		return reconcile.Result{}, nil
	})
	ask(t, lanes, "a")
	<-begun
	ask(t, lanes, "a") // the object changes while it is being processed
	ask(t, lanes, "a")
	close(goOn)
	<-done
	end()
	if n := times.Load(); n != 2 {
		t.Errorf("worked %d times, want 2", n)
	}
}

func TestWhatFailedIsTriedAgain(t *testing.T) {
	attempts := map[string]int{} // no lock is needed, because an object is processed by one worker at a time
	done := make(chan struct{}, 2)
	lanes, end := start(t, func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("there is no deadline")
		}
		attempts["a"]++
		switch attempts["a"] {
		case 1:
			return reconcile.Result{}, errors.New("not yet")
		case 2:
			panic("not yet")
		case 3:
			return reconcile.Result{RequeueAfter: time.Millisecond}, nil
		}
		done <- struct{}{}
		return reconcile.Result{}, reconcile.TerminalError(errors.New("never"))
	})
	ask(t, lanes, "a")
	<-done
	ask(t, lanes, "a") // this request is enqueued after the fourth attempt
	<-done
	if n := lanes.queue.NumRequeues(requestOf("a")); n != 0 {
		t.Errorf("a terminal error is tried again: %d", n)
	}
	end()
}
