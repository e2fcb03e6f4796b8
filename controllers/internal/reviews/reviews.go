// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package reviews limits the memory for admission reviews in the webhook server. One user can cause hundreds of
// reviews at once, with an object of some MiB each, and a review must be decoded before its user is known.
package reviews

import (
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// smallBytes is the maximum size of a small review. Small reviews do not queue behind larger ones. Reviews of
	// ordinary pods have some 10 KiB.
	smallBytes = 128 << 10
	// maxReviewBytes is the assumed size of a review without a content length. The handler does not read more than
	// this.
	maxReviewBytes = 7 << 20
	// maxTotalBytes limits the total size of the small reviews that are decoded at the same time, and separately of
	// all larger ones. Decoded reviews take about five times as much memory.
	maxTotalBytes = 8 << 20
	// bodyTimeout limits how long a sender occupies part of maxTotalBytes. API servers do not wait longer for a
	// response.
	bodyTimeout = 5 * time.Second
)

// Limit returns a handler that forwards requests to next in order of arrival, as soon as the limits have room for
// their bodies. A request is not forwarded if its sender no longer waits. The handler is safe for concurrent use.
func Limit(next http.Handler) http.Handler {
	return &limited{next: next, small: semaphore.NewWeighted(maxTotalBytes), large: semaphore.NewWeighted(maxTotalBytes)}
}

type limited struct {
	next         http.Handler
	small, large *semaphore.Weighted
}

// ServeHTTP implements http.Handler.
func (l *limited) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	size, room := request.ContentLength, l.large
	switch {
	case size < 0, size > maxReviewBytes:
		size = maxReviewBytes
	case size <= smallBytes:
		room = l.small
	}
	if err := room.Acquire(request.Context(), size); err != nil {
		http.Error(w, "too many large admission reviews at once: retry", http.StatusTooManyRequests)
		return
	}
	defer room.Release(size)
	// The error is ignored, because only the recorder in tests does not support deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	request.Body = http.MaxBytesReader(w, request.Body, size)
	l.next.ServeHTTP(w, request)
}
