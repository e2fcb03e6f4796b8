// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/internal/connection"
)

// TestLimitedRequestsAreReturnedAtOnce checks that clients return a provider's response immediately if the provider
// throttles requests or is unavailable, so that it cannot block a worker of its consumer with a long delay. This must
// also hold after the credentials were renewed.
func TestLimitedRequestsAreReturnedAtOnce(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		var requests atomic.Int32
		provider := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests, please try again later.", status)
		}))
		t.Cleanup(provider.Close)
		config := &rest.Config{Host: provider.URL, BearerToken: "token-of-the-consumer", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
		conn, err := connection.New(config, unbounded)
		require.NoError(t, err)
		clients, err := kubernetes.NewForConfig(conn.Config())
		require.NoError(t, err)
		for range 2 {
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
			} {
				requests.Store(0)
				err := ask()
				require.Error(t, err, "%d %s", status, verb)
				assert.EqualValues(t, 1, requests.Load(), "%d %s: requests", status, verb)
				if delay, _ := apierrors.SuggestsClientDelay(err); status == http.StatusTooManyRequests {
					assert.Equal(t, 1, delay, "%s: suggested delay of %v", verb, err)
				}
			}
			require.NoError(t, conn.Update(config))
		}
	}
}
