// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"strings"

	"github.com/refract-project/refract/host/document"
)

// Data from a provider is limited: it is not root here, and the objects of this cluster are stored and watched by
// others. Nothing legitimate is larger than this.
const (
	maxStatusBytes  = 64 << 10
	MaxMessageBytes = 1 << 10
)

const cutMark = " … (cut)"

// CutMessages returns the value with long messages truncated, the value itself when there are none. The cached value is never
// changed.
func CutMessages(value any) any {
	switch v := value.(type) {
	case map[string]any:
		var changed map[string]any
		for key, entry := range v {
			after := entry
			if text, ok := entry.(string); ok {
				if (key == "message" || key == "reason" || key == "note") && len(text) > MaxMessageBytes {
					after = strings.ToValidUTF8(text[:MaxMessageBytes-len(cutMark)], "") + cutMark
				} else {
					continue
				}
			} else if after = CutMessages(entry); same(after, entry) {
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
			after := CutMessages(element)
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

// same reports that CutMessages has returned what it was given. Scalars always are.
func same(a, b any) bool {
	x, y := document.Of(a), document.Of(b)
	return x.Kind() != document.Map && x.Kind() != document.List || x.Is(y)
}

// CutStatus is CutMessages of a status.
func CutStatus(status map[string]any) map[string]any {
	cut, _ := CutMessages(status).(map[string]any)
	return cut
}

// CheckStatusSize returns an error if a status is too large to be written here.
func CheckStatusSize(status map[string]any) error {
	if size := len(document.Of(status).AppendJSON(nil)); size > maxStatusBytes {
		return &OutputError{fmt.Sprintf("status from the provider is too large (%d bytes, limit %d) and was not applied", size, maxStatusBytes)}
	}
	return nil
}
