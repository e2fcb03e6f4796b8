// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package retryafter

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/internal/dynamicclient"
)

// TestResponsesAreReturnedAtOnce checks that a client of a wrapped configuration sends one request, and returns each
// error at once. The error for a 429 must contain the delay. Without the transport, client-go would wait and repeat
// each request whose response has a Retry-After header.
func TestResponsesAreReturnedAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status     int
		retryAfter string
		delay      int // delay that the error must contain
		text       string
	}{
		"429 with Retry-After":               {http.StatusTooManyRequests, "7", 7, "try again later"},
		"429 without":                        {http.StatusTooManyRequests, "", 0, ""},
		"429 with a Retry-After that is not": {http.StatusTooManyRequests, "soon", 0, "try again later"},
		"503 with Retry-After":               {http.StatusServiceUnavailable, "7", 0, ""},
		"200 with Retry-After":               {http.StatusOK, "7", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: "text/plain; charset=utf-8"}[c.status == http.StatusOK])
				w.WriteHeader(c.status)
				if c.status == http.StatusOK {
					_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"limited"}}`))
					return
				}
				_, _ = w.Write([]byte("Too many requests, please try again later.\n"))
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL, QPS: -1}
			Wrap(config)
			client, err := dynamicclient.New(config, dynamicclient.Options{})
			require.NoError(t, err)
			since := time.Now()
			_, err = client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("shop").Get(t.Context(), "limited", metav1.GetOptions{})
			if took := time.Since(since); requests.Load() != 1 || took > 5*time.Second {
				t.Errorf("%d requests in %s, want one at once", requests.Load(), took)
			}
			if c.status == http.StatusOK {
				require.NoError(t, err)
				return
			}
			if apierrors.IsTooManyRequests(err) != (c.status == http.StatusTooManyRequests) {
				t.Errorf("the error is %v", err)
			}
			if delay, _ := apierrors.SuggestsClientDelay(err); delay != c.delay {
				t.Errorf("the error suggests %d s, want %d s", delay, c.delay)
			}
			if !strings.Contains(err.Error(), c.text) {
				t.Errorf("the error %q has not the text of the response", err)
			}
		})
	}
}

// TestCausesOfAStatusAreKept checks that the error for a refused eviction contains the cause from the Status. From the
// cause, a drain can tell whether a PodDisruptionBudget blocks the eviction or the API server limits requests.
func TestCausesOfAStatusAreKept(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "10")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the budget is still being processed","reason":"TooManyRequests",
"details":{"retryAfterSeconds":10,"causes":[{"reason":"DisruptionBudget","message":"db"}]},"code":429}`))
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, QPS: -1}
	Wrap(config)
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	since := time.Now()
	err = clients.PolicyV1().Evictions("shop").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}})
	if took := time.Since(since); took > 5*time.Second {
		t.Errorf("the error was returned after %s, want at once", took)
	}
	delay, _ := apierrors.SuggestsClientDelay(err)
	if !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) || delay != 10 || err.Error() != "the budget is still being processed" {
		t.Errorf("the error is %v with a delay of %d s", err, delay)
	}
}
