// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package eventrecorder

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// incidental matches the parts of a message that differ in each attempt: times, durations, UUIDs and other random
// identifiers, generated suffixes of names, and client ports.
var incidental = regexp.MustCompile(strings.Join([]string{
	`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?`,
	`\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b`,
	`\b(?:[0-9a-f]*(?:[0-9][0-9a-f]*[a-f]|[a-f][0-9a-f]*[0-9])[0-9a-f]*){1}\b`,
	`\b\d+(?:\.\d+)?(?:ns|us|µs|ms)\b|\b\d+\.\d+s\b`,
	`-[bcdfghjklmnpqrstvwxz2456789]{5}\b`,
	`:\d{4,5}->`,
}, "|"))

// minIdentifier is the minimum length of a hexadecimal word that is assumed to be random. Shorter words may be
// amounts or versions.
const minIdentifier = 8

// causeOf returns the words of a message that are the same in each attempt, so that messages about the same problem can
// be recognized. The words are sorted, because maps are printed in random order.
func causeOf(message string) string {
	message = incidental.ReplaceAllStringFunc(message, func(part string) string {
		if len(part) < minIdentifier && isHexadecimal(part) {
			return part
		}
		return "*"
	})
	words := strings.FieldsFunc(message, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`,;[]{}()"'`, r) })
	slices.Sort(words)
	return strings.Join(words, " ")
}

func isHexadecimal(part string) bool {
	return strings.IndexFunc(part, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) }) < 0
}
