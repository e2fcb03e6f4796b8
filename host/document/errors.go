// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "strconv"

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

// maxErrorPath limits the length of a path in an Error, so that a hostile path cannot fill the log.
const maxErrorPath = 128

func newError(code Code, path, detail string) error {
	if len(path) > maxErrorPath {
		path = path[:maxErrorPath]
	}
	// The path must be copied, because it may be in a guest's memory.
	return &Error{Code: code, Path: string(append([]byte(nil), path...)), Detail: detail}
}

func wrongKind(path string, got Kind, want string) error {
	return newError(BadKind, path, "is "+got.String()+", not "+want)
}
