// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection_test

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
	"k8s.io/client-go/kubernetes"

	"github.com/refract-project/refract/internal/connection"
)

// TestLocalClients checks that the clients of a process for its own cluster return a throttled request immediately and
// follow no redirects, and that errors of a kubeconfig contain its source.
func TestLocalClients(t *testing.T) {
	var requests atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		requests.Add(1)
		if request.URL.Path == "/api/v1/nodes/moved" {
			http.Redirect(w, request, elsewhere.URL, http.StatusTemporaryRedirect)
			return
		}
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(`{apiVersion: v1, kind: Config, current-context: a,
  contexts: [{name: a, context: {cluster: a, user: a}}],
  clusters: [{name: a, cluster: {server: "`+server.URL+`"}}], users: [{name: a, user: {token: secret}}]}`), 0o600))
	config, err := connection.LoadLocal("--kubeconfig", "$KUBECONFIG", path)
	require.NoError(t, err)
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	_, err = clients.CoreV1().Nodes().Get(t.Context(), "rome", metav1.GetOptions{})
	delay, _ := apierrors.SuggestsClientDelay(err)
	assert.True(t, apierrors.IsTooManyRequests(err), "the error is %v", err)
	assert.Equal(t, 3600, delay)
	assert.EqualValues(t, 1, requests.Load(), "requests")
	_, err = clients.CoreV1().Nodes().Get(t.Context(), "moved", metav1.GetOptions{})
	assert.Error(t, err)

	_, err = connection.LoadLocal("--kubeconfig", "$KUBECONFIG", path+".missing")
	assert.ErrorContains(t, err, "$KUBECONFIG="+path+".missing cannot be used: ")
	_, err = connection.LoadLocal("--kubeconfig", "$KUBECONFIG", "")
	assert.ErrorContains(t, err, "set --kubeconfig or $KUBECONFIG, or run in a pod")
}
