// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/redirect"
)

// TestRedirectsAreNotFollowed checks that if a provider redirects its consumer to a server in the consumer's own
// network, the request is not sent to this server. This must also hold after the provider has moved to another address.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var seen atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	t.Cleanup(inside.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		redirects := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/leases/self") { // a redirect to another path on the same server is followed
				http.Redirect(w, r, "https://"+r.Host+"/itself", status)
				return
			}
			if r.URL.Path == "/itself" {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"self"}}`)
				return
			}
			http.Redirect(w, r, inside.URL+"/_all", status)
		})
		provider, next := httptest.NewTLSServer(redirects), httptest.NewTLSServer(redirects)
		t.Cleanup(provider.Close)
		t.Cleanup(next.Close)
		config := func(of *httptest.Server) *rest.Config {
			return &rest.Config{Host: of.URL, BearerToken: "token-of-the-consumer", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
		}
		conn, err := connection.New(config(provider), unbounded)
		require.NoError(t, err)
		clients, err := kubernetes.NewForConfig(conn.Config())
		require.NoError(t, err)
		streams := &http.Client{Transport: conn.Streams()}
		for _, from := range []*httptest.Server{provider, next} {
			require.NoError(t, conn.Update(config(from)))
			for verb, ask := range map[string]func() error{
				"get": func() error {
					_, err := clients.CoreV1().Secrets("shop").Get(t.Context(), "db", metav1.GetOptions{})
					return err
				},
				"watch": func() error {
					_, err := clients.CoreV1().Secrets("shop").Watch(t.Context(), metav1.ListOptions{})
					return err
				},
				"create": func() error {
					_, err := clients.CoreV1().Secrets("shop").Create(t.Context(), &corev1.Secret{}, metav1.CreateOptions{})
					return err
				},
				"stream": func() error {
					response, err := streams.Get(conn.URL().String() + "/api/v1/namespaces/shop/pods/web/log")
					if err == nil {
						_ = response.Body.Close()
					}
					return err
				},
			} {
				var refused *redirect.Error
				require.ErrorAs(t, ask(), &refused, "%d %s", status, verb)
				assert.Equal(t, inside.URL, refused.To)
				assert.Zero(t, seen.Load(), "%d %s went to the other server", status, verb)
			}
			lease, err := clients.CoordinationV1().Leases("shop").Get(t.Context(), "self", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, "self", lease.Name)
		}
	}
}
