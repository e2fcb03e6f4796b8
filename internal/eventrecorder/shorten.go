// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventrecorder contains the common logic of all Events: each is written only once, within the size limits of
// the API, as one line without control characters.
package eventrecorder

import "github.com/refract-project/refract/internal/printable"

// Limit is the maximum length of the message of an Event, in bytes.
const Limit = 1024

// Shorten returns the message on one line, with control characters escaped, and cut at the limit of the API server
// with a mark. A message often quotes a plugin or another cluster, and is shown on terminals. The quoted text must
// not look like another Event or another line of output.
func Shorten(message string) string { return printable.Shorten(printable.Line(message), Limit) }
