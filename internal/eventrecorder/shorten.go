// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventrecorder contains the rules for all Events: an Event is written only once, within the size limits of the
// API, and as one line without control characters.
package eventrecorder

import "github.com/refract-project/refract/internal/printable"

// Limit is the maximum length of the message of an Event, in bytes.
const Limit = 1024

// Shorten returns the message on one line, with control characters escaped. A message that is longer than the API
// server accepts is truncated, with a mark at its end. Messages often quote plugins or other clusters, and are
// displayed in terminals. The quoted text must not look like another Event or another line of output.
func Shorten(message string) string { return printable.Shorten(printable.Line(message), Limit) }
