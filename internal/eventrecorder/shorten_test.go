// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package eventrecorder

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// If an Event quotes another cluster, no control characters of the quoted text reach a terminal. The message fits
// even if the escapes make it longer.
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

// Shorten puts a message on one line, so that a plugin cannot fake additional lines of output when an Event is
// displayed.
func TestShortenIsOneLine(t *testing.T) {
	got := Shorten("plugin a: denied\r\nType:  Normal\n\tReason: Synced\u2028fine\u3164\u3164.")
	if want := "plugin a: denied Type: Normal Reason: Synced fine ."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
