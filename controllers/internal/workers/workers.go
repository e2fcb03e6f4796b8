// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package workers configures how the controllers process their queues.
package workers

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// minRetryDelay is the delay after the first failure of an object; the delay doubles with each further failure.
	// With a longer delay, recovery from a write conflict takes longer.
	minRetryDelay = 5 * time.Millisecond
	// maxRetryDelay limits the delay. With a longer limit, an object stays broken for longer after the cause is gone. A
	// shorter limit burdens an API server that has problems.
	maxRetryDelay = 30 * time.Second
	// reconcileTimeout limits one reconciliation with all its API calls. With a shorter timeout, reconciliations fail
	// if the API server is slow; with a longer one, an unresponsive API server can block a worker for longer.
	reconcileTimeout = 30 * time.Second
)

// Options returns the options of a controller with n workers. Retries are limited per object. There is no shared rate
// limit, so ten objects that fail do not delay a thousand new ones. The API server limits the overall rate with API
// Priority and Fairness.
func Options(n int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: n,
		RateLimiter:             newRateLimiter(),
		ReconciliationTimeout:   reconcileTimeout,
	}
}

func newRateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetryDelay, maxRetryDelay)
}
