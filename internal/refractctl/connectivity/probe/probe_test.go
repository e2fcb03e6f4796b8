// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRequestsAreNotRedirected checks that a pod reports a redirect to another server, and does not report the other
// server's response.
func TestRequestsAreNotRedirected(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request went to the other server") }))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	require.ErrorContains(t, getURL(t.Context(), io.Discard, server.URL), "redirects to another server, "+elsewhere.URL)
}
