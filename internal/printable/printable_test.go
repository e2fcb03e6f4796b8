// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "",
		"Ready, déjà vu 世界 👍 é":              "Ready, déjà vu 世界 👍 é",
		"two\nlines\tand a tab":              "two\nlines\tand a tab",
		"dos\r\nlines":                       "dos\nlines",
		"\x1b]0;title\a\x1b[2K\rall is well": `\u001b]0;title\u0007\u001b[2K\u000dall is well`,
		"C1 \u009b31m":                       `C1 \u009b31m`,
		"raw C1 \x9b31m":                     "raw C1 \uFFFD31m",
		"admin\u202egnp.exe":                 `admin\u202egnp.exe`,
		"\u2066isolated\u2069":               `\u2066isolated\u2069`,
		"zero\u200bwidth\ufeff\u00ad":        `zero\u200bwidth\ufeff\u00ad`,
		"line\u2028separator\u2029":          `line\u2028separator\u2029`,
		"tag \U000e0041":                     `tag \udb40\udc41`,
		"cut \xe2\x82":                       "cut \uFFFD\uFFFD",
		"delete \x7f nul \x00":               `delete \u007f nul \u0000`,
	} {
		assert.Equal(t, want, Text(text), "%q", text)
	}
}

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"one line":                  "one line",
		"milan\tReady\nturin\r\nok": "milan Ready turin ok",
		"a\u2028b\u0085c\vd\fe":     "a b c d e",
		"x\n\x1b[1A":                `x \u001b[1A`,
		"":                          "",
		"1.0" + strings.Repeat(" ", 58) + "Writes   nothing": "1.0 Writes nothing",
		" around ":                             "around",
		"no\u00a0break":                        "no break",
		"1\u2003\u3000\u20002":                 "1 2",
		"\u2800\u3164\uffa0\u115f\u1160\u034f": "",
		"한\u3164글 \u2800\u2800.":               "한 글 .",
		"\U0001d159x":                          "x",
		"👍\ufe0f déjà 世界":                      "👍\ufe0f déjà 世界",
	} {
		assert.Equal(t, want, Line(text), "%q", text)
		assert.Equal(t, strings.ReplaceAll(text, " ", "") == strings.ReplaceAll(want, " ", ""), IsLine(text), "%q", text)
	}
	assert.False(t, IsLine("\xff"))
	assert.Equal(t, "failed\n  refractctl: all is well", Indented("failed\nrefractctl: all is well"))
}

func TestShorten(t *testing.T) {
	assert.Equal(t, "short", Shorten("short", 5))
	assert.Equal(t, "éé …", Shorten("ééééé", 9))
	assert.Equal(t, "é …", Shorten("ééééé", 7))
}

// TestWriter checks that the result does not depend on where a text, or a character in it, is split between two writes.
func TestWriter(t *testing.T) {
	text := []byte("a世👍\u202e\x1b[0m\xff\n\U000e0041é")
	for i := range text {
		out := &bytes.Buffer{}
		w := NewWriter(out)
		for _, part := range [][]byte{text[:i], text[i:]} {
			n, err := w.Write(part)
			require.NoError(t, err)
			require.Equal(t, len(part), n)
		}
		assert.Equal(t, Text(string(text)), out.String(), "split at %d", i)
	}
}

// TestJSONKeepsItsMeaning checks that the escapes do not change the meaning of a JSON document.
func TestJSONKeepsItsMeaning(t *testing.T) {
	want := map[string]string{"text": "\u009b\u202e\U000e0041\x7f世\n\x1b"}
	encoded, err := json.Marshal(want)
	require.NoError(t, err)
	var got map[string]string
	require.NoError(t, json.Unmarshal([]byte(Text(string(encoded))), &got))
	assert.Equal(t, want, got)
}

func FuzzText(f *testing.F) {
	f.Add("\x1b]0;x\a\u202e\xff\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range Text(text) {
			if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
				t.Fatalf("%q keeps %U", text, r)
			}
		}
		line := Line(text)
		if !utf8.ValidString(line) || strings.ContainsAny(line, "\n\t\r") || !IsLine(line) || Line(line) != line {
			t.Fatalf("%q is not a line: %q", text, line)
		}
	})
}
