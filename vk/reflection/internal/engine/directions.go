// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// directedError has the errors of the two directions of the reflection of an object. The directions fail independently:
// an update that the provider refuses does not affect the status of the existing copy.
type directedError struct{ out, back error }

func (e *directedError) Error() string { return errors.Join(e.out, e.back).Error() }

func (e *directedError) Unwrap() []error {
	return slices.DeleteFunc([]error{e.out, e.back}, func(err error) bool { return err == nil })
}

// Directed returns the errors of the two directions as one error, or nil if neither failed. Any other error counts as
// an error of the direction Out.
func Directed(out, back error) error {
	if out == nil && back == nil {
		return nil
	}
	return &directedError{out, back}
}

// directions returns the errors of the two directions.
func directions(err error) map[Direction]error {
	both := &directedError{out: err}
	errors.As(err, &both)
	return map[Direction]error{Out: both.out, Back: both.back}
}

// attempt identifies one direction of an object in the rate limiter.
type attempt struct {
	key       Key
	direction Direction
}

// retries counts the failures of each direction of an object separately, so that a direction that fails permanently
// neither slows down nor speeds up the other one.
type retries struct {
	limiter workqueue.TypedRateLimiter[attempt]
}

func newRetries() retries {
	return retries{workqueue.NewTypedItemExponentialFailureRateLimiter[attempt](backoffFirst, backoffMost)}
}

// next counts a failure and returns the delay before the next try.
func (r retries) next(key Key, d Direction) time.Duration { return r.limiter.When(attempt{key, d}) }

// count returns the number of failures since the last success.
func (r retries) count(key Key, d Direction) int { return r.limiter.NumRequeues(attempt{key, d}) }

// succeeded resets the count of failures.
func (r retries) succeeded(key Key, d Direction) { r.limiter.Forget(attempt{key, d}) }
