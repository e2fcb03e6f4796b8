// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "strconv"

// Code classifies an Error.
type Code uint8

const (
	// BadPath is a malformed path.
	BadPath Code = iota + 1
	// BadKind is a value whose kind the operation does not support.
	BadKind
	// BadIndex is a list position that does not exist.
	BadIndex
	// BadValue is a value that JSON cannot represent: invalid UTF-8, NaN, infinities.
	BadValue
	// ReadOnly is a write below the context or the configuration.
	ReadOnly
	// Gone is a write to a node that does not exist, or no longer exists.
	Gone
	// TooManyNodes, TooManyBytes and TooDeep are exceeded limits; see Document.SetBudget.
	TooManyNodes
	TooManyBytes
	TooDeep
	// TooMuchWork is an exceeded limit of SetWorkLimit.
	TooMuchWork
)

// Error is the error type of every operation of this package.
type Error struct {
	Code   Code
	Path   string // path as passed; only the beginning of a long one
	Detail string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Detail
	}
	return strconv.Quote(e.Path) + ": " + e.Detail
}

// maxErrorPath prevents a hostile path from filling the log.
const maxErrorPath = 128

func newError(code Code, path, detail string) error {
	if len(path) > maxErrorPath {
		path = path[:maxErrorPath]
	}
	// The path is copied because it may be in a guest's memory.
	return &Error{Code: code, Path: string(append([]byte(nil), path...)), Detail: detail}
}

func wrongKind(path string, got Kind, want string) error {
	return newError(BadKind, path, "is "+got.String()+", not "+want)
}
