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
	// firstRetry is the delay after the first failure of an object; it doubles with each further one. A longer delay
	// prolongs the interruption by a conflict.
	firstRetry = 5 * time.Millisecond
	// lastRetry limits the delay. A longer limit leaves an object broken after its cause is gone; a shorter one burdens
	// an API server that has problems.
	lastRetry = 30 * time.Second
	// deadline limits one reconciliation with all its API calls. A shorter one fails with a slow API server; a longer
	// one allows an unresponsive API server to block a worker.
	deadline = 30 * time.Second
)

// Options returns the options of a controller with n workers. Retries are limited per object and share no bucket, so
// that a thousand new objects are not delayed by ten broken ones. Flow control is left to the API server.
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
