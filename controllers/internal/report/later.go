// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/controllers/internal/memo"
	"github.com/refract-project/refract/internal/apifailure"
)

const (
	// minRefusalDelay is the delay after the first refusal of an object; the delay doubles with each further refusal.
	// A longer delay postpones writes that an administrator has just allowed.
	minRefusalDelay = time.Minute
	// maxRefusalDelay limits the delay. A shorter limit sends more requests that are refused again.
	maxRefusalDelay = 30 * time.Minute
	// minThrottledDelay is the delay after HTTP 429 if the API server suggests none. A shorter delay adds to the load of
	// the API server.
	minThrottledDelay = time.Second
	// maxThrottledDelay limits the delay that an API server can suggest. With a longer maximum, the API server of a
	// provider could stop a controller for a long time.
	maxThrottledDelay = 30 * time.Second
)

// Refusals counts how often an API server has refused the writes of an object. A refusal is never final, because
// admission in the cluster may change. The zero value is ready for use. Refusals is safe for concurrent use.
type Refusals struct{ counts memo.Memo[refusals] }

type refusals struct {
	version string
	count   int
	retryAt time.Time // see RetryAt
}

// Next counts a refusal of a version of the object, and returns the delay before the next attempt. The delay is a
// random value between one and two times the base delay, so that objects that were refused at the same time are not
// retried at the same time.
func (r *Refusals) Next(key types.NamespacedName, version string) time.Duration {
	last, _ := r.counts.Get(key)
	if last.version != version {
		last = refusals{version: version, retryAt: last.retryAt}
	}
	if left := time.Until(last.retryAt); left > 0 {
		r.counts.Set(key, last)
		return left
	}
	delay := maxRefusalDelay
	if last.count < 16 {
		delay = min(minRefusalDelay<<last.count, maxRefusalDelay)
	}
	last.count++
	r.counts.Set(key, last)
	return delay + rand.N(delay)
}

// RetryAt sets the time of the next attempt after refusals before the given time. These refusals are not counted,
// because admission may still apply outdated rules until then.
func (r *Refusals) RetryAt(key types.NamespacedName, at time.Time) {
	last, _ := r.counts.Get(key)
	last.retryAt = at
	r.counts.Set(key, last)
}

// Drop removes the record of an object.
func (r *Refusals) Drop(key types.NamespacedName) { r.counts.Drop(key) }

// In returns the objects in a namespace whose last write was refused.
func (r *Refusals) In(namespace string) (keys []types.NamespacedName) {
	for key := range r.counts.Keys() {
		if key.Namespace == namespace {
			keys = append(keys, key)
		}
	}
	return keys
}

// later is an error after which the request is retried later than usual.
type later struct {
	error
	after time.Duration
}

// Unwrap returns the cause.
func (l *later) Unwrap() error { return l.error }

// Later returns an error that wraps err. If a reconciler in Failures returns it, the object is requeued after the
// delay.
func Later(err error, after time.Duration) error { return &later{err, after} }

// retryAfter returns the delay that was passed to Later, or the delay that an overloaded API server suggests. It is 0
// if err, or one of the errors that are joined in err, must be retried soon.
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
	if apifailure.IsOverloaded(err) {
		return throttledDelay(err)
	}
	return 0
}

// throttledDelay returns the delay that the API server suggests in a response 429. To spread the requests, it adds a
// random part of up to half the delay.
func throttledDelay(err error) time.Duration {
	after := minThrottledDelay
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		after = min(time.Duration(seconds)*time.Second, maxThrottledDelay)
	}
	return after + rand.N(after/2+1)
}

// postponed returns the result of a reconciliation whose error has a delay (see retryAfter). For any other error, it
// returns false.
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
