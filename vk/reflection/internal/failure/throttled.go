// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/refract-project/refract/internal/apifailure"
)

const (
	// minThrottledDelay is the delay before the next attempt if the API server does not request one. A shorter delay
	// would add to the load of the API server.
	minThrottledDelay = time.Second
	// maxThrottledDelay limits the delay that an API server can request. It equals the longest backoff after other
	// errors. With a higher limit, an API server could stop reflection for a long time.
	maxThrottledDelay = 30 * time.Second
)

// ThrottledReason is the reason of the Event about an API server that throttles this virtual kubelet.
const ThrottledReason = "RequestsThrottled"

// throttledError is a response 429 of an API server that limits requests.
type throttledError struct {
	where string // name of the API server
	cause error
}

func (e *throttledError) Error() string {
	return e.where + " limits the rate of requests (HTTP 429); the object is tried again by itself: " + e.cause.Error()
}

func (e *throttledError) Unwrap() error { return e.cause }

// Remedied implements Remedied.
func (e *throttledError) Remedied() {}

// WrapThrottled wraps a response 429 in a throttledError. It returns any other error unchanged.
func WrapThrottled(where string, err error) error {
	if !apifailure.IsOverloaded(err) {
		return err
	}
	return &throttledError{where, err}
}

// Pause returns the delay before the next attempt after a response 429. To the delay that the API server requests, it
// adds a random part of up to half the delay, so that the attempts for many objects are spread.
func Pause(err error) time.Duration {
	after := minThrottledDelay
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		after = min(time.Duration(seconds)*time.Second, maxThrottledDelay)
	}
	return after + rand.N(after/2+1) //nolint:gosec // it only spreads load
}
