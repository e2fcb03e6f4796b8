// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"errors"
	"strconv"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// Code classifies an Error.
type Code uint8

const (
	// BadPath means that a path is malformed.
	BadPath Code = iota + 1
	// BadKind means that the operation does not support the kind of the value.
	BadKind
	// BadIndex means that a list position does not exist.
	BadIndex
	// BadValue means that JSON cannot represent a value: invalid UTF-8, NaN or infinities.
	BadValue
	// ReadOnly means that a write is below the context or the configuration.
	ReadOnly
	// Gone means that a write is to a node that does not exist, or no longer exists.
	Gone
	// TooManyNodes, TooManyBytes and TooDeep mean that a limit is exceeded; see Document.SetBudget.
	TooManyNodes
	TooManyBytes
	TooDeep
	// TooMuchWork means that the limit of SetWorkLimit is exceeded.
	TooMuchWork
)

// Error is the type of the errors that operations of this package return.
type Error struct {
	Code   Code
	Path   string // path of the operation, or the beginning of a long path
	Detail string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Detail
	}
	return strconv.Quote(e.Path) + ": " + e.Detail
}

func newError(code Code, path, detail string) error {
	return &Error{Code: code, Path: fieldpath.Shorten(path), Detail: detail}
}

func wrongKind(path string, got Kind, want string) error {
	return newError(BadKind, path, "is "+got.String()+", not "+want)
}

func noWildcard(r *fieldpath.Route) error {
	return newError(BadPath, r.Text, "only removals take the wildcard * (the key is written [*])")
}

func noNumber(r *fieldpath.Route, at int) error {
	return newError(BadIndex, r.Text, "a list's element needs a number, not "+quotePath(r.Hops[at].Text))
}

func checkPath(path string) error { return badPath(fieldpath.Check(path)) }

// badPath returns the error of this package for an error of a malformed path.
func badPath(err error) error {
	var malformed *fieldpath.Error
	if errors.As(err, &malformed) {
		return newError(BadPath, malformed.Path, malformed.Detail)
	}
	return err
}
