// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fieldpath

import "strconv"

// Error is the error of a malformed path.
type Error struct {
	Path   string // the beginning of the path
	Detail string
}

func newError(path, detail string) error { return &Error{Path: Shorten(path), Detail: detail} }

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Detail
	}
	return strconv.Quote(e.Path) + ": " + e.Detail
}

// maxShort limits the length of a path in an error, so that a hostile path cannot fill the log.
const maxShort = 128

// Shorten returns the beginning of a path, for use in an error. The result is a copy, because the path may be in a
// guest's memory.
func Shorten(path string) string {
	return string(append([]byte(nil), path[:min(len(path), maxShort)]...))
}
