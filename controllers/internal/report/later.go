// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/controllers/internal/memo"
)

const (
	// firstRefusalRetry is the delay after the first refusal of an object; it doubles with each further one. Longer delays what an
	// administrator has made possible.
	firstRefusalRetry = time.Minute
	// lastRefusalRetry bounds the delay. Shorter sends more requests that are refused like those before.
	lastRefusalRetry = 30 * time.Minute
)

// Refusals counts how often an API server has refused what a controller writes. Whether an object is valid depends on the admission of the
// cluster too, so no refusal is final. The zero value is ready. Safe for concurrent use.
type Refusals struct{ counts memo.Memo[refusals] }

type refusals struct {
	version string
	count   int
}

// Next counts a refusal of a version of the object, and returns after which time to try again: between one and two times the delay, so that many
// objects that were refused at once are not written at once.
func (r *Refusals) Next(key types.NamespacedName, version string) time.Duration {
	last, _ := r.counts.Get(key)
	if last.version != version {
		last = refusals{version: version}
	}
	delay := lastRefusalRetry
	if last.count < 16 {
		delay = min(firstRefusalRetry<<last.count, lastRefusalRetry)
	}
	last.count++
	r.counts.Set(key, last)
	return delay + rand.N(delay)
}

// Drop forgets the refusals of an object.
func (r *Refusals) Drop(key types.NamespacedName) { r.counts.Drop(key) }

// In returns the objects in a namespace that were refused last.
func (r *Refusals) In(namespace string) (keys []types.NamespacedName) {
	for key := range r.counts.Keys() {
		if key.Namespace == namespace {
			keys = append(keys, key)
		}
	}
	return keys
}

// later is an error after which to wait longer than after others.
type later struct {
	error
	after time.Duration
}

// Unwrap lets the cause be recognised.
func (l *later) Unwrap() error { return l.error }

// Later returns err, after which Failures has the object reconciled again in that time, or when it changes.
func Later(err error, after time.Duration) error { return &later{err, after} }

// retryAfter returns the time of Later, 0 if err, or one of several errors that it joins, is to be retried soon.
func retryAfter(err error) time.Duration {
	if several, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // each of its errors is looked at
		after := time.Duration(0)
		for _, one := range several.Unwrap() {
			delay := retryAfter(one)
			if delay == 0 {
				return 0
			}
			if after == 0 || delay < after {
				after = delay
			}
		}
		return after
	}
	var l *later
	if errors.As(err, &l) {
		return l.after
	}
	return 0
}

// postponed returns the result for an error of Later, and whether it is one.
func postponed(result reconcile.Result, err error) (reconcile.Result, bool) {
	after := retryAfter(err)
	if after == 0 {
		return result, false
	}
	if result.RequeueAfter == 0 || after < result.RequeueAfter {
		result.RequeueAfter = after
	}
	return result, true
}
