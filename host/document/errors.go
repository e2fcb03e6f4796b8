// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "strconv"

// Code classifies an Error.
type Code uint8

const (
	// BadPath is a malformed path.
	BadPath Code = iota + 1
	// BadKind is a value of another kind than the operation needs.
	BadKind
	// BadIndex is a list position that is not there.
	BadIndex
	// BadValue is what JSON cannot express: invalid UTF-8, NaN, infinities.
	BadValue
	// ReadOnly is a write below the context or the configuration.
	ReadOnly
	// Gone is a write to a place that does not exist, or no longer.
	Gone
	// TooManyNodes, TooManyBytes and TooDeep are limits passed; see Document.SetBudget.
	TooManyNodes
	TooManyBytes
	TooDeep
	// TooMuchWork is the limit of SetWorkLimit passed.
	TooMuchWork
)

// Error is the error of every operation of this package.
type Error struct {
	Code   Code
	Path   string // as given; of a long one the beginning
	Detail string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Detail
	}
	return strconv.Quote(e.Path) + ": " + e.Detail
}

// maxErrorPath keeps a hostile path from filling the log.
const maxErrorPath = 128

func fail(code Code, path, detail string) error {
	if len(path) > maxErrorPath {
		path = path[:maxErrorPath]
	}
	// A copy: the path may lie in a guest's memory.
	return &Error{Code: code, Path: string(append([]byte(nil), path...)), Detail: detail}
}

func wrongKind(path string, got Kind, want string) error {
	return fail(BadKind, path, "is "+got.String()+", not "+want)
}
