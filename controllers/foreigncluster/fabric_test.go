// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProbesFollowNoRedirects checks that the probe of the network counts a redirect as a response, and does not follow
// it. The address is in the peer's network, but the target of the redirect may be in the network of this cluster.
func TestProbesFollowNoRedirects(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the request %s %s went to the other server", r.Method, r.URL)
	}))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		asked := 0
		redirect := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			http.Redirect(w, r, elsewhere.URL+"/_all", status)
		})
		for _, start := range []func(http.Handler) *httptest.Server{httptest.NewServer, httptest.NewTLSServer} {
			server := start(redirect)
			t.Cleanup(server.Close)
			probe, err := probeOf(server.URL + "/healthz")
			require.NoError(t, err)
			require.NoError(t, probe(t.Context()), "%d of %s", status, server.URL)
		}
		assert.Equal(t, 2, asked, "requests to the servers that redirect with %d", status)
	}
}
