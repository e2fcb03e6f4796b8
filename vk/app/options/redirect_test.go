// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/internal/redirect"
)

// TestThisClusterRedirectsToNoOtherServer checks that the virtual kubelet does not follow a redirect from its own
// cluster to another server.
func TestThisClusterRedirectsToNoOtherServer(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request went to the other server") }))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
  clusters: [{name: a, cluster: {server: "`+server.URL+`"}}], users: [{name: a, user: {token: secret}}]}`), 0o600))
	o, _, err := parse(t, nil, append(required, "--home-kubeconfig="+kubeconfig)...)
	require.NoError(t, err)
	_, client, err := o.LocalClient(func(next http.RoundTripper) http.RoundTripper { return next })
	require.NoError(t, err)
	_, err = client.Discovery().ServerVersion()
	var refused *redirect.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, elsewhere.URL, refused.To)
}
