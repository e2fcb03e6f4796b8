// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package reviews limits the memory that the webhook server needs for admission reviews. A single user can cause
// hundreds of concurrent reviews of objects of several MiB, and a review must be decoded before its user is known.
package reviews

import (
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// smallBytes is the maximum size of a small review. Small reviews do not have to wait for larger ones. The review
	// of an ordinary pod is a few dozen KiB.
	smallBytes = 128 << 10
	// maxReviewBytes limits the size of a review. A review without a content length is assumed to have this size.
	maxReviewBytes = 7 << 20
	// maxTotalBytes limits the total size of all small reviews that are decoded at the same time. The same limit
	// applies separately to larger reviews. A decoded review takes about five times as much memory.
	maxTotalBytes = 8 << 20
	// bodyTimeout limits how long a sender occupies part of maxTotalBytes. API servers do not wait longer for a
	// response.
	bodyTimeout = 5 * time.Second
)

// Limit returns a handler that forwards requests to next in the order of their arrival, as soon as the limits permit
// their size. It drops requests whose sender no longer waits. The handler is safe for concurrent use.
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
	// This fails only with the recorder in tests, which does not support deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	request.Body = http.MaxBytesReader(w, request.Body, size)
	l.next.ServeHTTP(w, request)
}
