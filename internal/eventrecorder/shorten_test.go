// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package eventrecorder

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestShortenEscapes checks that control characters of quoted text do not reach a terminal. The message must have the
// permitted length even if the escapes make it longer.
func TestShortenEscapes(t *testing.T) {
	if got, want := Shorten("denied\x1b]0;x\a\u202e\xff"), "denied\\u001b]0;x\\u0007\\u202e\uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, text := range []string{strings.Repeat("\x1b", Limit), strings.Repeat("ü", Limit), strings.Repeat("\xff", Limit)} {
		if got := Shorten(text); len(got) > Limit || !utf8.ValidString(got) {
			t.Errorf("%d bytes of %.10q", len(got), text)
		}
	}
}

// TestShortenIsOneLine checks that the result is one line, so that a plugin cannot forge additional lines of output.
func TestShortenIsOneLine(t *testing.T) {
	got := Shorten("plugin a: denied\r\nType:  Normal\n\tReason: Synced\u2028fine\u3164\u3164.")
	if want := "plugin a: denied Type: Normal Reason: Synced fine ."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
