// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !wasip1

package sdk

import (
	"errors"
	"strings"

	"github.com/refract-project/refract/host/document"
)

// handle refers to a node of the session's document. The zero Node is absent.
type handle struct {
	s *session
	n document.Node
}

func (h handle) isZero() bool { return h.n.ID() == 0 }

// checkAccess ends the hook if an operation of the document has failed, as the host does.
func checkAccess(function, path string, err error) {
	var refused *document.Error
	switch {
	case err == nil:
		return
	case !errors.As(err, &refused):
		panic(&AccessError{function, path, err.Error()})
	case refused.Path != "":
		path = refused.Path
	}
	panic(&AccessError{function, path, refused.Detail})
}

// at returns the value at path.
func (h handle) at(function, path string) document.View {
	v, err := h.n.At(path)
	checkAccess(function, path, err)
	return v
}

// checkKind ends the hook if the kind of the value differs from the kind that the function reads.
func checkKind(function, path string, v document.View, isRead bool, want string) {
	if !isRead {
		panic(&AccessError{function, path, "the value is of kind " + v.Kind().String() + ", not " + want})
	}
}

func (h handle) kind(path string) Kind { return Kind(h.at("kind", path).Kind()) }

func (h handle) length(path string) int { return h.at("len", path).Len() }

func (h handle) get(path string) handle {
	n, err := h.n.Get(path)
	checkAccess("get", path, err)
	return handle{h.s, n}
}

func (h handle) field(key string) handle {
	n, err := h.n.Field(key)
	checkAccess("field", key, err)
	return handle{h.s, n}
}

func (h handle) elem(i int) handle {
	n, err := h.n.Index(i)
	checkAccess("elem", "", err)
	return handle{h.s, n}
}

func (h handle) str(path string) (string, bool) {
	v := h.at("string", path)
	if !v.Exists() {
		return "", false
	}
	s, isText := v.Text()
	checkKind("string", path, v, isText, "string")
	return s, true
}

func (h handle) strEq(path, s string) bool {
	text, isText := h.at("string_eq", path).Text()
	return isText && text == s
}

func (h handle) integer(path string, fallback int64) int64 {
	v := h.at("int", path)
	if !v.Exists() {
		return fallback
	}
	i, isInt := v.Int()
	checkKind("int", path, v, isInt, "int")
	return i
}

func (h handle) float(path string, fallback float64) float64 {
	v := h.at("float", path)
	if !v.Exists() {
		return fallback
	}
	f, isNumber := v.Float()
	checkKind("float", path, v, isNumber, "a number")
	return f
}

func (h handle) boolean(path string, fallback bool) bool {
	v := h.at("bool", path)
	if !v.Exists() {
		return fallback
	}
	b, isBool := v.Bool()
	checkKind("bool", path, v, isBool, "bool")
	return b
}

func (h handle) keys(path string) []string {
	v := h.at("keys", path)
	if !v.Exists() {
		return nil
	}
	checkKind("keys", path, v, v.Kind() == document.Map, "map")
	return v.Keys(nil)
}

func (h handle) json(path string) []byte {
	v := h.at("json", path)
	if v.Kind() == document.Absent {
		return nil
	}
	return v.AppendJSON(nil)
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
