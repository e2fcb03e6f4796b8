// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"strings"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/printable"
)

// Data from a provider is limited: the provider is not root here, and the objects of this cluster are stored and
// watched by other clients. No legitimate value exceeds these limits.
const (
	maxStatusBytes  = 64 << 10
	MaxMessageBytes = 1 << 10
)

const cutMark = " … (cut)"

// CutMessages returns the value with long messages truncated, or the value itself if it has none. The cached value is
// never changed.
func CutMessages(value any) any { return replaceTexts("", value, cutMessage) }

func cutMessage(key, text string) string {
	if (key == "message" || key == "reason" || key == "note") && len(text) > MaxMessageBytes {
		return strings.ToValidUTF8(text[:MaxMessageBytes-len(cutMark)], "") + cutMark
	}
	return text
}

// EscapeTexts returns the value with control characters escaped in all texts, or the value itself if it has none. The
// cached value is never changed. It is for objects that are written here for people, such as Events. The status of a
// pod stays as its containers wrote it.
func EscapeTexts(value any) any {
	return replaceTexts("", value, func(_, text string) string { return printable.Text(text) })
}

// replaceTexts returns the value, which is stored under the key, with its texts replaced, or the value itself if none
// changes.
func replaceTexts(key string, value any, replace func(key, text string) string) any {
	switch v := value.(type) {
	case string:
		return replace(key, v)
	case map[string]any:
		var changed map[string]any
		for key, entry := range v {
			after := replaceTexts(key, entry, replace)
			if same(after, entry) {
				continue
			}
			if changed == nil {
				changed = maps.Clone(v)
			}
			changed[key] = after
		}
		if changed != nil {
			return changed
		}
	case []any:
		var changed []any
		for i, element := range v {
			after := replaceTexts("", element, replace)
			if same(after, element) {
				continue
			}
			if changed == nil {
				changed = append([]any(nil), v...)
			}
			changed[i] = after
		}
		if changed != nil {
			return changed
		}
	}
	return value
}

// same reports whether replaceTexts has returned its argument unchanged. Values that are not texts, maps or lists, such
// as numbers, are always unchanged.
func same(a, b any) bool {
	if text, isText := a.(string); isText {
		return text == b
	}
	x, y := document.Of(a), document.Of(b)
	return x.Kind() != document.Map && x.Kind() != document.List || x.Is(y)
}

// CutStatus applies CutMessages to a status.
func CutStatus(status map[string]any) map[string]any {
	cut, _ := CutMessages(status).(map[string]any)
	return cut
}

// CheckStatusSize returns an error if a status is too large to be written here.
func CheckStatusSize(status map[string]any) error {
	if size := len(document.Of(status).AppendJSON(nil)); size > maxStatusBytes {
		return &InputError{fmt.Sprintf("status from the provider is too large (%d bytes, limit %d) and was not applied", size, maxStatusBytes)}
	}
	return nil
}
