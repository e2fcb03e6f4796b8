// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package printable escapes untrusted text so that it can be shown on a terminal, in tables, in Events and in logs.
//
// A terminal interprets some characters: they can move the cursor, rename the window, or overwrite earlier output.
// Other characters are invisible, or reverse the direction of writing. The author of a text could use them to deceive
// the reader. This package replaces such characters with their JSON escapes, such as \u001b. Within a JSON document,
// these escapes do not change the meaning.
package printable

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns text as valid UTF-8. It escapes control, format and private-use characters, except line breaks and tabs.
// \r\n becomes \n.
func Text(text string) string {
	if strings.IndexFunc(text, isHarmful) < 0 && utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for _, r := range strings.ReplaceAll(text, "\r\n", "\n") {
		if isHarmful(r) {
			writeEscape(&out, r)
		} else {
			out.WriteRune(r) // r is U+FFFD for an invalid byte
		}
	}
	return out.String()
}

// Line returns Text on one line, without leading and trailing blanks. A sequence of blanks, including line breaks and
// tabs, becomes one space, so that the line can be used in a table: by adding many blanks, the author of the text could
// make it wrap and forge a row.
func Line(text string) string {
	if isSpaced(text) {
		return Text(text)
	}
	return Text(strings.Join(strings.FieldsFunc(text, isBlank), " "))
}

// Indented returns Text with all lines after the first one indented, so that none of them can be mistaken for other
// output.
func Indented(text string) string { return strings.ReplaceAll(Text(text), "\n", "\n  ") }

// IsLine reports whether Line would leave text unchanged, apart from the number of spaces.
func IsLine(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return r != ' ' && isBlank(r) || isHarmful(r) }) < 0
}

// isSpaced reports whether the only blanks in text are single spaces between other characters.
func isSpaced(text string) bool {
	before := ' '
	for _, r := range text {
		if isBlank(r) && (r != ' ' || before == ' ') {
			return false
		}
		before = r
	}
	return text == "" || before != ' '
}

// MaxMessage is the maximum number of bytes in the message of a condition. Kubernetes enforces it.
const MaxMessage = 32 << 10

// Message returns a text as the message of a condition: one line of at most MaxMessage bytes.
func Message(text string) string { return Shorten(Line(text), MaxMessage) }

const more = " …"

// Shorten truncates a text that exceeds the maximum length (most, in bytes), and adds a mark that shows that the text
// was truncated. It does not split characters. A shorter text is returned unchanged.
func Shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}

// isHarmful reports whether a character must be escaped. Characters that were added to Unicode after Go's tables were
// made are not escaped.
func isHarmful(r rune) bool {
	return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp)
}

// isBlank reports whether a character is shown as a gap or not at all: a space of any width, a line break, or an
// invisible letter or symbol, such as the Hangul fillers and the empty Braille pattern. Characters that Text escapes
// are not blank.
func isBlank(r rune) bool {
	const emptyBraille, nullNotehead = '\u2800', '\U0001d159'
	return unicode.IsSpace(r) || r == emptyBraille || r == nullNotehead || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

// writeEscape writes the JSON escape of a character.
func writeEscape(out *strings.Builder, r rune) {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
		return
	}
	fmt.Fprintf(out, `\u%04x`, r)
}

// Writer escapes its input like Text, and writes the result to another writer. It is safe for concurrent use.
type Writer struct {
	mu   sync.Mutex
	out  io.Writer
	rest []byte // first bytes of an incomplete character
}

// NewWriter returns a Writer that writes to out.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Write implements io.Writer.
func (w *Writer) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := append(w.rest, text...)
	complete := len(all) - incompleteBytes(all)
	if _, err := io.WriteString(w.out, Text(string(all[:complete]))); err != nil {
		return 0, err
	}
	w.rest = append([]byte(nil), all[complete:]...)
	return len(text), nil
}

// incompleteBytes returns the number of bytes of an incomplete character at the end of text.
func incompleteBytes(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
