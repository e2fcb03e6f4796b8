// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homenames

import "github.com/prometheus/client_golang/prometheus"

// Results of queries in the metrics.
const (
	resultForwarded  = "forwarded"
	resultTranslated = "translated"
	resultFailed     = "failed"
	resultMalformed  = "malformed"
	resultDropped    = "dropped"
)

// Metrics contains the metrics of a Resolver.
type Metrics struct {
	queries    *prometheus.CounterVec
	namespaces prometheus.Gauge
}

// NewMetrics returns the metrics of a Resolver, registered with registerer.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	m := &Metrics{
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refract_home_names_queries_total",
			Help: "DNS queries of offloaded pods by transport and result: translated, forwarded unchanged, failed (the cluster's DNS did not answer), malformed, or dropped (too many at once).",
		}, []string{"transport", "result"}),
		namespaces: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "refract_home_names_namespaces",
			Help: "Namespaces of the consumer whose names are translated.",
		}),
	}
	for _, transport := range []string{"udp", "tcp"} {
		for _, result := range []string{resultForwarded, resultTranslated, resultFailed, resultMalformed, resultDropped} {
			m.queries.WithLabelValues(transport, result)
		}
	}
	registerer.MustRegister(m.queries, m.namespaces)
	return m
}

func (m *Metrics) count(transport, result string) { m.queries.WithLabelValues(transport, result).Inc() }
