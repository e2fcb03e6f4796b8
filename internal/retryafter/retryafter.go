// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package retryafter makes clients of an API server return responses with a Retry-After header at once.
//
// By default, client-go waits for the delay in such a response (429 or 5xx) and repeats the request up to ten times,
// until the deadline of the call. The server can thus block a worker for as long as it likes, and the error is a
// timeout. The processes of Refract have their own queues, which retry each object.
//
// The commands of refractctl do not use this package. They have no queue, and end with the first error. Without
// client-go's retries, a server that limits requests for a second would stop a command halfway. The timeout of each
// request (15 s) and an interrupt by the user also end client-go's wait.
package retryafter

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
	"k8s.io/client-go/rest"
)

// header is the header with the delay before the next attempt, in seconds.
const header = "Retry-After"

// maxText limits how much of a response is shown in an error, in bytes.
const maxText = 256

// Wrap makes clients of config return responses with a Retry-After header at once. See Transport.
func Wrap(config *rest.Config) { config.Wrap(Transport) }

// Transport returns a RoundTripper that sends requests through next. client-go does not repeat these requests, except
// after a lost connection. If the response is a 429, apierrors.SuggestsClientDelay returns the delay in it.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil || response.Header.Get(header) == "" || response.StatusCode != http.StatusTooManyRequests && response.StatusCode < http.StatusInternalServerError {
		return response, err
	}
	seconds, _ := strconv.Atoi(response.Header.Get(header))
	response.Header.Del(header)
	// A Status in the response contains the delay. It may also contain causes, such as the PodDisruptionBudget that
	// blocks an eviction.
	if response.StatusCode != http.StatusTooManyRequests || isEncodedStatus(response) {
		return response, nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxText))
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

// isEncodedStatus reports whether the body of the response is an encoded object. If the API server itself limits
// requests, it responds with plain text.
func isEncodedStatus(response *http.Response) bool {
	return !strings.HasPrefix(response.Header.Get("Content-Type"), "text/")
}

// WrappedRoundTripper returns the wrapped transport. client-go uses it to close idle connections.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
