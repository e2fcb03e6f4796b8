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

// TestRequestsAreNotRedirected checks that a pod of a connectivity test reports a redirect to another server instead of
// the answer of that server.
func TestRequestsAreNotRedirected(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request went to the other server") }))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	require.ErrorContains(t, getURL(t.Context(), io.Discard, server.URL), "redirects to another server, "+elsewhere.URL)
}
