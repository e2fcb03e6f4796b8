// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventrecorder has the common logic of all Events: each is written once, within the size limits of the API, as one line without control
// characters.
package eventrecorder

import "github.com/refract-project/refract/internal/printable"

// Limit is how many bytes the API server accepts in the message of an Event.
const Limit = 1024

// Shorten returns the message, or as much of it as the API server accepts, in whole characters, and a sign that there was more. It is one line, and
// control characters are escaped: a message often quotes a plugin or another cluster, whose words are not to be taken for another Event or line of
// output, and is shown on terminals.
func Shorten(message string) string { return printable.Shorten(printable.Line(message), Limit) }
