// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !wasip1

package sdk

import (
	"strconv"
	"strings"
)

// maxPath is the longest path that the host accepts, in bytes.
const maxPath = 1024

// segment of a path. Only one that was written in brackets or plain digits can
// be an index; only one outside brackets can be a wildcard.
type segment struct {
	key      string
	verbatim bool
}

// wildcard reports a * that stands for every entry. A list has no keys, so in
// brackets it can mean nothing else there.
func (s segment) wildcard() bool { return !s.verbatim && s.key == "*" }

// appends reports a - that stands for the place behind the last element of a list.
func (s segment) appends() bool { return !s.verbatim && s.key == "-" }

// container returns the empty value that is created for the segment where there is nothing.
func (s segment) container() *value {
	if s.appends() {
		return newList(nil)
	}
	return newMap(nil)
}

func (s segment) index() (int, bool) {
	i, err := strconv.ParseUint(s.key, 10, 31)
	return int(i), err == nil
}

// parsePath cuts a path into its segments, or says what is wrong with it.
func parsePath(path string) ([]segment, string) {
	if len(path) > maxPath {
		return nil, "the path is longer than 1024 bytes"
	}
	var segments []segment
	for rest := path; rest != ""; {
		var s segment
		var problem string
		if rest[0] == '[' {
			s, rest, problem = bracketed(rest[1:])
		} else {
			s, rest = plain(rest)
		}
		switch {
		case problem != "" || s.verbatim:
		case s.key == "":
			problem = "a segment is empty"
		case strings.Contains(s.key, "]"):
			problem = "a bracket is closed that was not opened"
		}
		if problem != "" {
			return nil, problem
		}
		segments = append(segments, s)
		if strings.HasPrefix(rest, ".") {
			if rest = rest[1:]; rest == "" {
				return nil, "a segment is empty"
			}
		}
	}
	return segments, ""
}

func plain(rest string) (segment, string) {
	end := strings.IndexAny(rest, ".[")
	if end < 0 {
		end = len(rest)
	}
	return segment{key: rest[:end]}, rest[end:]
}

// bracketed reads up to the closing bracket; ]] stands for ].
func bracketed(rest string) (segment, string, string) {
	var key strings.Builder
	for {
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return segment{}, "", "a bracket is not closed"
		}
		key.WriteString(rest[:end])
		rest = rest[end+1:]
		if !strings.HasPrefix(rest, "]") {
			break
		}
		key.WriteByte(']')
		rest = rest[1:]
	}
	if rest != "" && rest[0] != '.' && rest[0] != '[' {
		return segment{}, "", "a bracket is followed by text"
	}
	return segment{key: key.String(), verbatim: true}, rest, ""
}
