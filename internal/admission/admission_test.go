// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/internal/admission"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// TestDenialsAreCounted checks that denials are counted even if the client ignores them, and that the client can still
// read the whole response.
func TestDenialsAreCounted(t *testing.T) {
	const message = `nodes "a" is forbidden: ValidatingAdmissionPolicy 'refract-nodes' with binding 'refract-nodes' denied request: no`
	long := message + strings.Repeat(" ", 1<<20)
	for name, tc := range map[string]struct {
		method, body string
		status       int
		counted      float64
	}{
		"forbidden":           {http.MethodPost, message, http.StatusForbidden, 1},
		"invalid":             {http.MethodPatch, "k8s\x00\x0a" + message + "\x12", http.StatusUnprocessableEntity, 1},
		"a long response":     {http.MethodPut, long, http.StatusForbidden, 1},
		"another refusal":     {http.MethodPost, `nodes "a" is forbidden: User "b" cannot create`, http.StatusForbidden, 0},
		"an object about one": {http.MethodPost, message, http.StatusCreated, 0},
		"a read":              {http.MethodGet, message, http.StatusForbidden, 0},
	} {
		t.Run(name, func(t *testing.T) {
			denials := admission.NewDenials()
			transport := denials.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: tc.status, Body: io.NopCloser(strings.NewReader(tc.body))}, nil
			}))
			request, err := http.NewRequestWithContext(t.Context(), tc.method, "https://127.0.0.1/api/v1/nodes", nil)
			require.NoError(t, err)
			response, err := transport.RoundTrip(request)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			assert.Equal(t, tc.body, string(body))
			counted := &dto.Metric{}
			require.NoError(t, denials.WithLabelValues("refract-nodes").Write(counted))
			assert.InDelta(t, tc.counted, counted.GetCounter().GetValue(), 0)
		})
	}
}
