// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package retryafter makes clients of an API server return responses with a Retry-After header at once.
//
// By default, client-go sleeps for the delay of such a response (429 and 5xx) and repeats the request up to ten times,
// until the deadline of the call. This blocks a worker, for a delay that another party can choose, and the error is a
// timeout. The processes of this project retry each object by themselves.
//
// The commands of refractctl keep the behavior of client-go: they have no queue that repeats a request, and fail with the
// first error, so that a limit of a second would end them halfway. The limit on the duration of each request (15 s) and
// an interruption by the user also end the sleep.
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

// maxText limits the length of the part of a response that is shown in an error, in bytes.
const maxText = 256

// Wrap makes clients of config return responses with a Retry-After header at once. See Transport.
func Wrap(config *rest.Config) { config.Wrap(Transport) }

// Transport wraps next. client-go does not repeat requests that it sends, unless the connection was lost. For the error
// of a response 429, apierrors.SuggestsClientDelay returns the delay.
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
	// A Status contains the delay. It may also contain causes, such as the PodDisruptionBudget that blocks an eviction.
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

// isEncodedStatus reports whether the response is an encoded object. The API server's limit on requests responds with
// plain text.
func isEncodedStatus(response *http.Response) bool {
	return !strings.HasPrefix(response.Header.Get("Content-Type"), "text/")
}

// WrappedRoundTripper returns the wrapped transport. client-go uses it to close idle connections.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
