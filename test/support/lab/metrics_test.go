// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	writes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "writes_total"}, []string{"kind", "verb"})
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "latency_seconds", Buckets: []float64{1, 2, 4}}, []string{"plugin"})
	registry.MustRegister(writes, latency)
	writes.WithLabelValues("Pod", "create").Add(3)
	writes.WithLabelValues("Pod", "patch").Add(4)
	writes.WithLabelValues("Service", "patch").Add(5)
	latency.WithLabelValues("pod").Observe(1)
	latency.WithLabelValues("pod").Observe(3)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	metrics, err := scrape(ctx, server.URL)
	require.NoError(t, err)
	for _, tc := range []struct {
		name   string
		labels map[string]string
		want   float64
	}{
		{"writes_total", nil, 12},
		{"writes_total", map[string]string{"kind": "Pod"}, 7},
		{"writes_total", map[string]string{"kind": "Pod", "verb": "patch"}, 4},
		{"writes_total", map[string]string{"kind": "Ingress"}, 0},
		{"latency_seconds", map[string]string{"plugin": "pod"}, 2},
		{"absent", nil, 0},
	} {
		if got := metrics.Sum(tc.name, tc.labels); got != tc.want {
			t.Errorf("%s %v: %g, want %g", tc.name, tc.labels, got, tc.want)
		}
	}
	for q, want := range map[float64]float64{0.5: 1, 0.51: 4, 1: 4} {
		if got := metrics.Quantile("latency_seconds", nil, q); got != want {
			t.Errorf("quantile %g: %g, want %g", q, got, want)
		}
	}
	if got := metrics.Quantile("absent", nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing: %g", got)
	}

	broken := httptest.NewServer(http.NotFoundHandler())
	defer broken.Close()
	if _, err := scrape(ctx, broken.URL); err == nil {
		t.Error("no error for a server without metrics")
	}
}
