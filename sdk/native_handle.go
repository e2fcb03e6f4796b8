// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !wasip1

package sdk

import (
	"fmt"
	"strings"
)

// handle names a value of the session; without a value it is absent.
type handle struct {
	s *session
	v *value
}

func (h handle) isZero() bool { return h.v == nil }

// access is a call of the host's contract in progress: what its error names.
type access struct {
	function, path string
	segments       []segment
}

func newAccess(function, path string) *access {
	segments, problem := parsePath(path)
	a := &access{function, path, segments}
	if problem != "" {
		a.fail("%s", problem)
	}
	return a
}

func (a *access) fail(problem string, args ...any) {
	panic(&AccessError{a.function, a.path, fmt.Sprintf(problem, args...)})
}

// at reads the value at path, nil when it is absent.
func (h handle) at(function, path string) *value {
	a := newAccess(function, path)
	v := h.v
	for _, s := range a.segments {
		if v == nil {
			return nil
		}
		v = a.step(v, s)
	}
	if v != nil && v.kind == KindAbsent {
		return nil
	}
	return v
}

func (a *access) step(v *value, s segment) *value {
	switch v.kind {
	case KindAbsent, KindNull:
		return nil
	case KindMap:
		return v.fields[s.key]
	case KindList:
		i, ok := s.index()
		if !ok {
			a.fail("%q is no index of a list", s.key)
		}
		if i >= len(v.list) {
			return nil
		}
		return v.list[i]
	}
	a.fail("it leads through %s", v.kind)
	return nil
}

// scalar reads a value of one of the kinds; nil stands for absent and null.
func (h handle) scalar(function, path string, kinds ...Kind) *value {
	v := h.at(function, path)
	if v == nil || v.kind == KindNull {
		return nil
	}
	for _, kind := range kinds {
		if v.kind == kind {
			return v
		}
	}
	newAccess(function, path).fail("expected %s, found %s", kinds[0], v.kind)
	return nil
}

func (h handle) kind(path string) Kind {
	if v := h.at("kind", path); v != nil {
		return v.kind
	}
	return KindAbsent
}

func (h handle) length(path string) int {
	if v := h.at("len", path); v != nil {
		return v.length()
	}
	return 0
}

func (h handle) get(path string) handle { return handle{h.s, h.at("get", path)} }

func (h handle) field(key string) handle {
	if v := h.scalar("field", "", KindMap); v != nil {
		return handle{h.s, v.fields[key]}
	}
	return handle{s: h.s}
}

func (h handle) elem(i int) handle {
	v := h.scalar("elem", "", KindList)
	if v == nil || i < 0 || i >= len(v.list) {
		return handle{s: h.s}
	}
	return handle{h.s, v.list[i]}
}

func (h handle) str(path string) (string, bool) {
	v := h.scalar("string", path, KindString)
	if v == nil {
		return "", false
	}
	return v.string, true
}

func (h handle) strEq(path, s string) bool {
	v := h.at("string_eq", path)
	return v != nil && v.kind == KindString && v.string == s
}

func (h handle) integer(path string, fallback int64) int64 {
	v := h.scalar("int", path, KindInt, KindFloat)
	switch {
	case v == nil:
		return fallback
	case v.kind == KindInt:
		return v.int
	case float64(int64(v.float)) != v.float:
		newAccess("int", path).fail("expected integer, found %v", v.float)
	}
	return int64(v.float)
}

func (h handle) float(path string, fallback float64) float64 {
	v := h.scalar("float", path, KindFloat, KindInt)
	switch {
	case v == nil:
		return fallback
	case v.kind == KindInt:
		return float64(v.int)
	}
	return v.float
}

func (h handle) boolean(path string, fallback bool) bool {
	if v := h.scalar("bool", path, KindBool); v != nil {
		return v.bool
	}
	return fallback
}

func (h handle) keys(path string) []string {
	if v := h.scalar("keys", path, KindMap); v != nil {
		return v.keys()
	}
	return nil
}

func (h handle) json(path string) []byte {
	v := h.at("json", path)
	if v == nil {
		return nil
	}
	return encodeJSON(v.any())
}

func (h handle) log(level Level, text string) {
	h.s.lines = append(h.s.lines, LogLine{level, text})
}

func (h handle) warn(text string) { h.s.warnings = append(h.s.warnings, strings.Clone(text)) }

func (h handle) remapIP(ip string) (string, bool) {
	if h.s.remap == nil {
		return "", false
	}
	return h.s.remap(ip)
}
