// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Lanes is a queue with one worker per object. If objects shared workers, the objects of servers that do not respond
// could block all workers. Lanes is meant for few objects, such as one per peer.
//
// Lanes is both a reconciler and a runnable. As a reconciler, it only enqueues the requests of a controller. A manager
// must start the runnable, which processes them.
type Lanes struct {
	inner reconcile.Reconciler
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// NewLanes returns lanes that call inner for each request.
func NewLanes(inner reconcile.Reconciler) *Lanes {
	return &Lanes{inner: inner, queue: workqueue.NewTypedRateLimitingQueue(newRateLimiter())}
}

// Reconcile enqueues the request without waiting.
func (l *Lanes) Reconcile(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
	l.queue.Add(request)
	return reconcile.Result{}, nil
}

// Start processes requests until ctx is done, and returns when all workers have stopped.
func (l *Lanes) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, l.queue.ShutDown)()
	var working sync.WaitGroup
	defer working.Wait()
	for {
		request, ended := l.queue.Get() // Get does not return an object that is being processed
		if ended {
			return nil
		}
		working.Go(func() {
			defer l.queue.Done(request)
			l.work(ctx, request)
		})
	}
}

func (l *Lanes) work(ctx context.Context, request reconcile.Request) {
	logger := log.FromContext(ctx).WithValues("object", request.NamespacedName)
	result, err := l.attempt(log.IntoContext(ctx, logger), request)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, reconcile.TerminalError(nil)):
		l.queue.Forget(request)
		logger.Error(err, "Cannot reconcile, waiting for a change before retrying")
	case err != nil:
		l.queue.AddRateLimited(request)
		logger.Error(err, "Cannot reconcile, retrying")
	default:
		l.queue.Forget(request)
		if result.RequeueAfter > 0 {
			l.queue.AddAfter(request, result.RequeueAfter)
		}
	}
}

// attempt calls the inner reconciler. It recovers from a panic, as controllers do.
func (l *Lanes) attempt(ctx context.Context, request reconcile.Request) (_ reconcile.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return l.inner.Reconcile(ctx, request)
}
