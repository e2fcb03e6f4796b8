// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// maxStatus limits how many bytes of an error response are searched for the message of a policy. A Status is far
// smaller.
const maxStatus = 64 << 10

// Transport returns a RoundTripper that sends requests through next. If a response reports a denial by a policy, it
// calls denied with the policy and its message. denied may be called concurrently.
func Transport(next http.RoundTripper, denied func(request *http.Request, policy, message string)) http.RoundTripper {
	return &transport{next, denied}
}

type transport struct {
	next   http.RoundTripper
	denied func(request *http.Request, policy, message string)
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil || request.Method == http.MethodGet || response.StatusCode < http.StatusBadRequest || response.StatusCode >= http.StatusInternalServerError {
		return response, err
	}
	begin, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	if err != nil {
		return nil, errors.Join(err, response.Body.Close())
	}
	response.Body = &replayed{io.MultiReader(bytes.NewReader(begin), response.Body), response.Body}
	if found := denial.FindSubmatch(begin); found != nil { // the message is plain text in JSON and in protobuf
		t.denied(request, string(found[1]), string(found[0]))
	}
	return response, nil
}

// replayed is the body of a response of which some bytes were already read. Reading it returns these bytes again, and
// then the rest.
type replayed struct {
	io.Reader
	io.Closer
}

// Denials counts the requests of a client that a policy denied, by policy. It is safe for concurrent use.
type Denials struct{ *prometheus.CounterVec }

// NewDenials returns an empty collector. The caller must register it.
func NewDenials() Denials {
	return Denials{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "refract_policy_denials_total", Help: "Requests to the API server of this cluster that an admission policy denied, by policy.",
	}, []string{"policy"})}
}

// Transport returns a RoundTripper that sends requests through next and counts denials by policies.
func (d Denials) Transport(next http.RoundTripper) http.RoundTripper {
	return Transport(next, func(_ *http.Request, policy, _ string) { d.WithLabelValues(policy).Inc() })
}
