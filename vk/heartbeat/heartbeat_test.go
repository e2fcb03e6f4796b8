// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// TestDenialsAreAskedAboutAgain checks that a denied heartbeat is retried soon, because an API server that has just
// started may deny requests for a moment. After repeated denials, retries must become rare.
func TestDenialsAreAskedAboutAgain(t *testing.T) {
	code := http.StatusForbidden
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1"}`))
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	h := &sender{Options: Options{ClusterID: "rome", Leases: client.CoordinationV1().Leases("liqo-tenant-rome"), Interval: 10 * time.Second, Clock: clock.RealClock{},
		Ready: func(context.Context) error { return nil }}}
	assert.Equal(t, failedRetryDelay, h.sendHeartbeat(t.Context()))
	next := time.Duration(0)
	for range 20 {
		next = h.sendHeartbeat(t.Context())
	}
	assert.Equal(t, deniedRetryDelay, next)
	code = http.StatusOK
	assert.Equal(t, 10*time.Second, h.sendHeartbeat(t.Context()))
	code = http.StatusForbidden
	assert.Equal(t, failedRetryDelay, h.sendHeartbeat(t.Context()), "it was allowed a moment ago")
	code = http.StatusInternalServerError
	assert.Equal(t, failedRetryDelay, h.sendHeartbeat(t.Context()))
}
