// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package readonly_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/refract-project/refract/vk/reflection/internal/readonly"
)

// TestOnlyReadsLeave checks which requests reach the server. With a marked context, these are only GET requests that do
// not connect to a pod, a Service or a node. With an unmarked context, GET requests that connect must reach the server,
// too.
func TestOnlyReadsLeave(t *testing.T) {
	var arrived atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	defer server.Close()
	client := &http.Client{Transport: readonly.Transport(http.DefaultTransport)}
	send := func(ctx context.Context, method, path string, header http.Header) int {
		request, err := http.NewRequestWithContext(ctx, method, server.URL+path, http.NoBody)
		require.NoError(t, err)
		request.Header = header
		before := arrived.Load()
		response, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return int(arrived.Load() - before)
	}
	marked := readonly.With(t.Context(), rate.NewLimiter(rate.Inf, 1))
	const pod = "/api/v1/namespaces/shop/pods/web"
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions, http.MethodConnect} {
		require.Zero(t, send(marked, method, pod, nil), method)
	}
	for _, path := range []string{pod + "/exec", pod + "/attach", pod + "/portforward", pod + "/proxy/metrics", "/api/v1/nodes/worker/proxy/run", "/api/v1/namespaces/shop/services/web/proxy"} {
		require.Zero(t, send(marked, http.MethodGet, path, nil), path)
		require.Equal(t, 1, send(t.Context(), http.MethodGet, path, nil), path)
	}
	require.Zero(t, send(marked, http.MethodGet, pod, http.Header{"Upgrade": {"SPDY/3.1"}}))
	for _, path := range []string{pod, "/api/v1/namespaces/proxy/secrets/exec", "/api/v1/nodes/proxy", pod + "/log", "/apis/apps/v1/namespaces/shop/deployments/attach", "/readyz", "/api"} {
		require.Equal(t, 1, send(marked, http.MethodGet, path, nil), path)
	}
}

// TestReadsWait checks that the limiter applies to reads with a marked context. A read that would have to wait too long
// must be refused with a response, not with an error of the transport.
func TestReadsWait(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	client := &http.Client{Transport: readonly.Transport(http.DefaultTransport)}
	// The context has a deadline, as in every real call.
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ctx := readonly.With(bounded, rate.NewLimiter(rate.Every(time.Hour), 1))
	for _, want := range []int{http.StatusOK, http.StatusForbidden} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/v1/namespaces/shop/secrets/key", http.NoBody)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, response.StatusCode)
	}
}
