// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// throttledFirst is when to try again what an API server has throttled if it does not say when.
	throttledFirst = time.Second
	// throttledMost bounds what it may ask for: an object is not left alone for longer than after other errors.
	throttledMost = backoffMost
	// throttledLong is how long an object has to wait for an API server that throttles until an Event says so. Shorter ones would add to the load
	// that is being limited.
	throttledLong = 10 * time.Second
	// retryAfterHeader is the header by which an API server says when to try again.
	retryAfterHeader = "Retry-After"
)

// ThrottledReason is the reason of the Event that an API server limits the requests of this virtual kubelet.
const ThrottledReason = "RequestsThrottled"

// throttledError is the answer 429: the API server does not take so many requests at the moment.
type throttledError struct {
	where string // for texts
	cause error
}

func (e *throttledError) Error() string {
	return e.where + " limits the rate of requests (HTTP 429); the object is tried again by itself: " + e.cause.Error()
}

func (e *throttledError) Unwrap() error { return e.cause }

// Remedied implements Remedied.
func (e *throttledError) Remedied() {}

// throttled names the API server in an error that says that it takes no more requests.
func throttled(where string, err error) error {
	if !apierrors.IsTooManyRequests(err) {
		return err
	}
	return &throttledError{where, err}
}

// pause returns when to try again what was throttled: when the API server says, and not all objects at the same moment.
func pause(err error) time.Duration {
	after := throttledFirst
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		after = min(time.Duration(seconds)*time.Second, throttledMost)
	}
	return after + rand.N(after/2+1) //nolint:gosec // it only spreads load
}

// longThrottled reports whether an object has waited long enough for an Event.
func (r *reflector) longThrottled(key Key) bool {
	since, known := r.arrivals.since(key)
	return known && r.m.options.Clock.Since(since) >= throttledLong
}

// answerAtOnce has client-go return the answers that say when to try again, 429 and 5xx. It would sleep and repeat the request, up to ten times, with a
// worker that other objects wait for, until the deadline of the call; the caller would then not know why. What the header says is in the error.
func answerAtOnce(next http.RoundTripper) http.RoundTripper { return atOnce{next} }

type atOnce struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t atOnce) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil || response.Header.Get(retryAfterHeader) == "" || response.StatusCode != http.StatusTooManyRequests && response.StatusCode < http.StatusInternalServerError {
		return response, err
	}
	seconds, _ := strconv.Atoi(response.Header.Get(retryAfterHeader))
	response.Header.Del(retryAfterHeader)
	if response.StatusCode != http.StatusTooManyRequests {
		return response, nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxThrottledText))
	if closed := response.Body.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, fmt.Errorf("reading the answer, %w", err)
	}
	status := apierrors.NewTooManyRequests(strings.TrimSpace(string(text)), seconds).ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("encoding the answer, %w", err)
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Set("Content-Type", "application/json")
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return response, nil
}

// maxThrottledText bounds how much of an answer is shown.
const maxThrottledText = 256

// WrappedRoundTripper lets others find the transport below.
func (t atOnce) WrappedRoundTripper() http.RoundTripper { return t.next }
