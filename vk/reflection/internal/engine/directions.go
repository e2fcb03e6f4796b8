// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// directedError has the errors of the two directions of the reflection of an object. They fail apart: an update that the provider refuses
// does not affect the status of the existing copy.
type directedError struct{ out, back error }

func (e *directedError) Error() string { return errors.Join(e.out, e.back).Error() }

func (e *directedError) Unwrap() []error {
	return slices.DeleteFunc([]error{e.out, e.back}, func(err error) bool { return err == nil })
}

// Directed returns the errors of the two directions as one, nil if neither has failed. An error that is not made here is one of Out.
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

// attempt is one direction of an object, for the rate limiter.
type attempt struct {
	key       Key
	direction Direction
}

// retries count the failures of each direction of an object by themselves, so that one that fails for good does not slow down, or speed up,
// the other one.
type retries struct {
	limiter workqueue.TypedRateLimiter[attempt]
}

func newRetries() retries {
	return retries{workqueue.NewTypedItemExponentialFailureRateLimiter[attempt](backoffFirst, backoffMost)}
}

// next returns when to try again, and counts the failure.
func (r retries) next(key Key, d Direction) time.Duration { return r.limiter.When(attempt{key, d}) }

// count returns the failures since the last success.
func (r retries) count(key Key, d Direction) int { return r.limiter.NumRequeues(attempt{key, d}) }

// succeeded begins anew.
func (r retries) succeeded(key Key, d Direction) { r.limiter.Forget(attempt{key, d}) }
