// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"errors"
	"slices"
)

// directedError has the errors of the two directions of reflection. The directions fail independently: an update that
// the provider rejects does not affect the status of the existing copy.
type directedError struct{ out, back error }

func (e *directedError) Error() string { return errors.Join(e.out, e.back).Error() }

func (e *directedError) Unwrap() []error {
	return slices.DeleteFunc([]error{e.out, e.back}, func(err error) bool { return err == nil })
}

// Directed returns the errors of the two directions as one error, or nil if neither direction failed. Directions
// treats any other error as an error of the direction Out.
func Directed(out, back error) error {
	if out == nil && back == nil {
		return nil
	}
	return &directedError{out, back}
}

// Directions returns the errors of the two directions.
func Directions(err error) map[Direction]error {
	both := &directedError{out: err}
	errors.As(err, &both)
	return map[Direction]error{Out: both.out, Back: both.back}
}
