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
	// throttledFirst is the delay before the next attempt if the API server does not send one.
	throttledFirst = time.Second
	// throttledMost limits the delay that an API server can request to the longest backoff after other errors.
	throttledMost = backoffMost
	// throttledLong is the time after which an Event reports that an object is throttled. A shorter time would increase
	// the load on an API server that is already overloaded.
	throttledLong = 10 * time.Second
	// retryAfterHeader is the header with the delay before the next attempt, in seconds.
	retryAfterHeader = "Retry-After"
)

// ThrottledReason is the reason of the Event about an API server that limits the requests of this virtual kubelet.
const ThrottledReason = "RequestsThrottled"

// throttledError is the response 429 of an API server that limits requests.
type throttledError struct {
	where string // name of the API server
	cause error
}

func (e *throttledError) Error() string {
	return e.where + " limits the rate of requests (HTTP 429); the object is tried again by itself: " + e.cause.Error()
}

func (e *throttledError) Unwrap() error { return e.cause }

// Remedied implements Remedied.
func (e *throttledError) Remedied() {}

// throttled wraps a response 429 in a throttledError, and returns other errors unchanged.
func throttled(where string, err error) error {
	if !apierrors.IsTooManyRequests(err) {
		return err
	}
	return &throttledError{where, err}
}

// pause returns the delay before the next attempt after a response 429: the delay in the response, plus up to half of
// it, to spread the objects.
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

// answerAtOnce returns a transport that makes client-go return responses with a Retry-After header, 429 and 5xx. By
// default client-go sleeps and repeats the request up to ten times, until the deadline of the call: the worker is
// blocked, and the error is a timeout. The delay in the header becomes part of the error.
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

// maxThrottledText limits the length of the shown part of a response.
const maxThrottledText = 256

// WrappedRoundTripper returns the transport below, for callers that unwrap transports.
func (t atOnce) WrappedRoundTripper() http.RoundTripper { return t.next }
