// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLimitedRequestsOfThisClusterAreReturnedAtOnce checks that the clients for this cluster return the error
// immediately, instead of waiting and repeating the request, if the API server throttles a request.
func TestLimitedRequestsOfThisClusterAreReturnedAtOnce(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
  clusters: [{name: a, cluster: {server: "`+server.URL+`"}}], users: [{name: a, user: {token: secret}}]}`), 0o600))
	o, _, err := parse(t, nil, append(required, "--home-kubeconfig="+kubeconfig)...)
	require.NoError(t, err)
	_, client, err := o.LocalClient(func(next http.RoundTripper) http.RoundTripper { return next })
	require.NoError(t, err)
	_, err = client.CoreV1().Nodes().Get(t.Context(), "virtual", metav1.GetOptions{})
	delay, _ := apierrors.SuggestsClientDelay(err)
	assert.True(t, apierrors.IsTooManyRequests(err), "the error is %v", err)
	assert.Equal(t, 1, delay)
	assert.EqualValues(t, 1, requests.Load(), "requests")
}
