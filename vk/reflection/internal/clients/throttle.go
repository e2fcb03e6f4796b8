// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// retryAfterHeader is the header with the delay before the next attempt, in seconds.
const retryAfterHeader = "Retry-After"

// answerAtOnce returns a transport that makes client-go return responses with a Retry-After header, 429 and 5xx. By
// default client-go sleeps and repeats the request up to ten times, until the deadline of the call. This would block
// the worker, and the error would be a timeout. The returned error contains the delay from the header.
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

// maxThrottledText limits the length of the part of a response that is shown in an error.
const maxThrottledText = 256

// WrappedRoundTripper returns the wrapped transport, for callers that unwrap transports.
func (t atOnce) WrappedRoundTripper() http.RoundTripper { return t.next }
