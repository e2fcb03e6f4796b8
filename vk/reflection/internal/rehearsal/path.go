// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rehearsal

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/refract-project/refract/host/document"
)

// join appends a key to a path, in the syntax of plugins: metadata.annotations[example.com/team].
func join(path, key string) string {
	switch {
	case key == "" || strings.ContainsAny(key, ".[]\n/*"):
		return path + "[" + strings.ReplaceAll(key, "]", "]]") + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// index matches the index of a list element in a path.
var index = regexp.MustCompile(`^[0-9]+$`)

// equal reports whether two values are equal. An empty map or list equals a missing value.
func equal(a, b any) bool {
	return document.Of(withoutEmpty(a)).Equal(document.Of(withoutEmpty(b)))
}

func withoutEmpty(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
	}
	return value
}

// cut truncates a text that exceeds the maximum length (most, in bytes).
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const end = "…"
	text = text[:most-len(end)]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + end
}
