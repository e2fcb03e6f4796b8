// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
)

// Delays before an object whose plugin has failed is retried. The object must be retried even if nothing has changed,
// because the cause of the failure may be gone: another version of the plugin, an overloaded machine, or the state of
// an instance.
const (
	firstPluginRetry = 5 * time.Second
	mostPluginRetry  = 10 * time.Minute
)

// newPluginRetries returns the retries of objects whose plugin has failed. The delay of a direction doubles with each
// failure until the chain of this direction succeeds.
func newPluginRetries() retries {
	return retries{workqueue.NewTypedItemExponentialFailureRateLimiter[attempt](firstPluginRetry, mostPluginRetry)}
}

// Forget resets the delays of an object in both directions.
func (r retries) Forget(key Key) {
	r.Succeeded(key, evaluation.Out)
	r.Succeeded(key, evaluation.Back)
}

// attempt is the key of the rate limiter: an object and a direction.
type attempt struct {
	key       Key
	direction evaluation.Direction
}

// retries counts the failures of each direction of an object separately, so that failures in one direction do not
// affect the delay of the other.
type retries struct {
	limiter workqueue.TypedRateLimiter[attempt]
}

const (
	// backoffFirst and backoffMost are the first and the maximum delay before an object is retried.
	backoffFirst = 5 * time.Millisecond
	backoffMost  = 30 * time.Second
)

func newRetries() retries {
	return retries{workqueue.NewTypedItemExponentialFailureRateLimiter[attempt](backoffFirst, backoffMost)}
}

// Next counts a failure of an object in one direction, and returns the delay before the retry.
func (r retries) Next(key Key, d evaluation.Direction) time.Duration {
	return r.limiter.When(attempt{key, d})
}

// Count returns how often an object has failed in one direction since its last success.
func (r retries) Count(key Key, d evaluation.Direction) int {
	return r.limiter.NumRequeues(attempt{key, d})
}

// Succeeded resets the failure count of an object in one direction.
func (r retries) Succeeded(key Key, d evaluation.Direction) { r.limiter.Forget(attempt{key, d}) }

const (
	// FirstPartRetry is the delay before a partially rejected update is retried. Each further delay is twice as long.
	// With a shorter delay, the retries would count as a fight: see package oscillation.
	FirstPartRetry = 2 * time.Minute
	// mostPartRetry is the maximum delay. With a longer delay, an object stays outdated for longer after the provider
	// has begun to accept the update.
	mostPartRetry = time.Hour
)
