// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package workers processes the queues of controllers.
package workers

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// firstRetry is the delay after the first failure of an object; it doubles
	// with each further one. Longer delays what a conflict interrupts.
	firstRetry = 5 * time.Millisecond
	// lastRetry bounds the delay. Longer leaves an object broken after its cause
	// is gone; shorter burdens an API server that is in trouble.
	lastRetry = 30 * time.Second
	// deadline bounds one reconciliation with all its API calls. Shorter fails on
	// a slow API server; longer lets a silent one keep a worker.
	deadline = 30 * time.Second
)

// Options returns the options of a controller with n workers: retries are
// bounded per object and share no bucket, so that a thousand new objects are
// not slowed down by ten broken ones. Flow control is left to the API server.
func Options(n int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: n,
		RateLimiter:             newRateLimiter(),
		ReconciliationTimeout:   deadline,
	}
}

func newRateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
}
