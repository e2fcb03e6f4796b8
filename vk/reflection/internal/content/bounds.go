// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package content

import (
	"fmt"
	"maps"
	"strings"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/printable"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
)

// Limits of a provider's data. A provider is not an administrator of this cluster, but its data is stored and watched
// by others here. Legitimate values rarely exceed these limits.
const (
	maxStatusBytes  = 64 << 10
	MaxMessageBytes = 1 << 10
)

const cutMark = " … (cut)"

// CutMessages truncates the long messages in a value. It returns the value itself if there are none. It does not modify
// the value, which may be in a cache.
func CutMessages(value any) any { return replaceTexts("", value, cutMessage) }

func cutMessage(key, text string) string {
	if (key == "message" || key == "reason" || key == "note") && len(text) > MaxMessageBytes {
		return strings.ToValidUTF8(text[:MaxMessageBytes-len(cutMark)], "") + cutMark
	}
	return text
}

// EscapeTexts escapes the control characters in all texts of a value. It returns the value itself if there are none. It
// does not modify the value, which may be in a cache. EscapeTexts is for local objects that people read, such as
// Events. It is not used for the status of a pod, because its messages must remain as the containers wrote them.
func EscapeTexts(value any) any {
	return replaceTexts("", value, func(_, text string) string { return printable.Text(text) })
}

// replaceTexts replaces the texts in a value. It returns the value itself if no text changes. key is the key of the
// value.
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

// same reports whether a, the result of replaceTexts for b, is b itself. Values other than texts, maps and lists, such
// as numbers, never change.
func same(a, b any) bool {
	if text, isText := a.(string); isText {
		return text == b
	}
	x, y := document.Of(a), document.Of(b)
	return x.Kind() != document.Map && x.Kind() != document.List || x.Is(y)
}

// CutStatus truncates long messages in a status (see CutMessages).
func CutStatus(status map[string]any) map[string]any {
	cut, _ := CutMessages(status).(map[string]any)
	return cut
}

// CheckStatusSize returns an error if a status is too large for this cluster.
func CheckStatusSize(status map[string]any) error {
	if size := len(document.Of(status).AppendJSON(nil)); size > maxStatusBytes {
		return &failure.InputError{Problem: fmt.Sprintf("status from the provider is too large (%d bytes, limit %d) and was not applied", size, maxStatusBytes)}
	}
	return nil
}
