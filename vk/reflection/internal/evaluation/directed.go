// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"errors"
	"slices"
)

// directedError contains an error for each direction of reflection. The directions are independent: if the provider
// rejects an update, the status of the existing copy is still reflected.
type directedError struct{ out, back error }

func (e *directedError) Error() string { return errors.Join(e.out, e.back).Error() }

func (e *directedError) Unwrap() []error {
	return slices.DeleteFunc([]error{e.out, e.back}, func(err error) bool { return err == nil })
}

// Directed combines the errors of the two directions into one error. It returns nil if neither direction failed.
func Directed(out, back error) error {
	if out == nil && back == nil {
		return nil
	}
	return &directedError{out, back}
}

// Directions returns the error of each direction, or nil for a direction that did not fail. An error that was not made
// by Directed is treated as an error of the direction Out.
func Directions(err error) map[Direction]error {
	both := &directedError{out: err}
	errors.As(err, &both)
	return map[Direction]error{Out: both.out, Back: both.back}
}
