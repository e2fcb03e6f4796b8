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

// ThrottledReason is the reason of the Event about an API server that limits the requests of this virtual kubelet.
const ThrottledReason = "RequestsThrottled"

// throttledError is the response 429 of an API server that limits requests.
type throttledError struct {
	where string // name of the API server that limits requests
	cause error
}

func (e *throttledError) Error() string {
	return e.where + " limits the rate of requests (HTTP 429); the object is tried again by itself: " + e.cause.Error()
}

func (e *throttledError) Unwrap() error { return e.cause }

// Remedied marks the error as one whose message contains the remedy.
func (e *throttledError) Remedied() {}

// WrapThrottled wraps a response 429 in a throttledError. It returns other errors unchanged.
func WrapThrottled(where string, err error) error {
	if !apifailure.IsOverloaded(err) {
		return err
	}
	return &throttledError{where, err}
}

// Pause returns the delay before the next attempt after a response 429: the delay that the API server requests, plus
// a random part of up to half of it, which spreads the attempts for many objects.
func Pause(err error) time.Duration {
	after := minThrottledDelay
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		after = min(time.Duration(seconds)*time.Second, maxThrottledDelay)
	}
	return after + rand.N(after/2+1) //nolint:gosec // it only spreads load
}
