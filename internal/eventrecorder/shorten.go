// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventrecorder is what all of our Events have in common: each is written once, and fits.
package eventrecorder

import "strings"

// Limit is how many bytes the API server accepts in the message of an Event.
const Limit = 1024

const more = " …"

// Shorten returns the message, or as much of it as the API server accepts, in whole characters, and a sign that there was more.
func Shorten(message string) string {
	if len(message) <= Limit {
		return message
	}
	return strings.ToValidUTF8(message[:Limit-len(more)], "") + more
}
