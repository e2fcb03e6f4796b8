// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package readonly

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// Transport returns a transport that refuses writes if the context is marked. It must be the outermost transport, so
// that other transports do not process the refusals. It is safe for concurrent use.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	limiter := limiterOf(request.Context())
	switch {
	case limiter == nil:
		return t.next.RoundTrip(request)
	case !reads(request):
		return refuse(request, request.Method+" "+request.URL.Path)
	case limiter.Wait(request.Context()) != nil:
		// The refusal is a response, because the API server would count as unreachable after an error.
		return refuse(request, "read "+request.URL.Path+" later, because reads are limited")
	}
	return t.next.RoundTrip(request)
}

// refuse returns a response that refuses the request. The request is not sent.
func refuse(request *http.Request, would string) (*http.Response, error) {
	if request.Body != nil {
		if err := request.Body.Close(); err != nil {
			return nil, fmt.Errorf("closing the body of a refused request, %w", err)
		}
	}
	body, err := json.Marshal(newRefusal(would).ErrStatus)
	if err != nil {
		return nil, fmt.Errorf("encoding the refusal, %w", err)
	}
	return &http.Response{
		Status: strconv.Itoa(http.StatusForbidden) + " " + http.StatusText(http.StatusForbidden), StatusCode: http.StatusForbidden,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(body))}},
		Body:   io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// WrappedRoundTripper returns the wrapped transport, for callers that unwrap transports.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
