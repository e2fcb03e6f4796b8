// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventrecorder has the common logic of all Events: each is written once, within the size limits of the API.
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
