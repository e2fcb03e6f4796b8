// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package reviews limits the memory that admission reviews take in the webhook server. One user can send hundreds of them at once, with
// an object of some MiB each, and reviews are decoded before anything is known about their sender.
package reviews

import (
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// smallBytes is the size of a review up to which it does not queue with larger ones. Those of ordinary pods have some 10 KiB.
	smallBytes = 128 << 10
	// maxReviewBytes is the size of a review whose length is not announced; the handler reads no more.
	maxReviewBytes = 7 << 20
	// maxTotalBytes of small reviews, and of others, are decoded at once. Decoded, they take about five times as much.
	maxTotalBytes = 8 << 20
	// bodyTimeout limits how long a sender occupies its share. API servers wait for an answer no longer than this.
	bodyTimeout = 5 * time.Second
)

// Limit returns a handler that passes requests on to next as their bodies find room, in order of arrival. Requests whose sender does not
// wait so long are not passed on. It is safe for concurrent use.
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
	// Of servers that cannot set it the tests' recorder is the only one.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	request.Body = http.MaxBytesReader(w, request.Body, size)
	l.next.ServeHTTP(w, request)
}
