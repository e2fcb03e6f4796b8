// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/refract-project/refract/host"
)

// metrics are the metrics of one Manager. The first two have the names and labels that Liqo's dashboards use.
type metrics struct {
	items, itemErrors *prometheus.CounterVec
	objects           *prometheus.CounterVec
	errors            *prometheus.CounterVec
	chainSeconds      *prometheus.HistogramVec
	crossing          *prometheus.HistogramVec
	fuel              *prometheus.CounterVec
	writes            *prometheus.CounterVec
	eventsDropped     prometheus.Counter
	namespaces        prometheus.Gauge
}

// chainBuckets reach from one microsecond to one second: a default plugin takes a few microseconds.
var chainBuckets = []float64{1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 2e-2, 1e-1, 1}

// crossingBuckets reach from one millisecond to half an hour, because the provider may be unreachable for that long.
var crossingBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}

func newMetrics() *metrics {
	liqo := []string{"namespace", "reflector_resource", "cluster_id", "node_name"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &metrics{
		items:      counter("liqo_virtual_kubelet_reflection_item_counter", "Objects of offloaded namespaces that were reconciled successfully.", liqo...),
		itemErrors: counter("liqo_virtual_kubelet_reflection_error_counter", "Reconciliations of objects of offloaded namespaces that failed.", liqo...),
		objects:    counter("refract_reflection_objects_total", "Objects reconciled, by result: unchanged, written, deleted, failed.", "kind", "result"),
		errors:     counter("refract_reflection_errors_total", "Errors by class and direction.", "kind", "class", "direction"),
		chainSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "refract_plugin_duration_seconds", Help: "Time one plugin took for one object.", Buckets: chainBuckets,
		}, []string{"kind", "hook", "plugin"}),
		crossing: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "refract_crossing_seconds", Help: "Latency from observing a change in one cluster to writing it to the other.", Buckets: crossingBuckets,
		}, []string{"kind", "direction"}),
		fuel:          counter("refract_plugin_fuel_total", "Fuel that plugins used.", "kind", "hook", "plugin"),
		writes:        counter("refract_api_writes_total", "Writes to the API servers.", "kind", "verb", "destination"),
		eventsDropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "refract_events_dropped_total", Help: "Events not written because there were too many."}),
		namespaces:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "refract_reflection_namespaces", Help: "Namespaces that are offloaded."}),
	}
}

// register exports the metrics and the depth of each queue.
func (m *metrics) register(registerer prometheus.Registerer, reachable func() bool, depths, quarantined func() map[string]int) error {
	if registerer == nil {
		return nil
	}
	collectors := []prometheus.Collector{m.items, m.itemErrors, m.objects, m.errors, m.chainSeconds, m.crossing, m.fuel, m.writes, m.eventsDropped, m.namespaces}
	collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "refract_provider_reachable", Help: "1 if the provider's API server is reachable, 0 from the first request that fails until a probe succeeds."},
		func() float64 {
			if reachable() {
				return 1
			}
			return 0
		}))
	collectors = append(collectors, countCollector{depthDesc, depths}, countCollector{quarantinedDesc, quarantined})
	var faults []error
	for _, collector := range collectors {
		faults = append(faults, registerer.Register(collector))
	}
	return errors.Join(faults...)
}

// countCollector exports a number for each kind, because kinds are added and removed at run time.
type countCollector struct {
	desc   *prometheus.Desc
	counts func() map[string]int
}

var (
	depthDesc       = prometheus.NewDesc("refract_reflection_queue_depth", "Objects that wait to be evaluated.", []string{"kind"}, nil)
	quarantinedDesc = prometheus.NewDesc("refract_reflection_quarantined", "Objects that are left alone for a while because another client keeps reverting what is written.", []string{"kind"}, nil)
)

// Describe implements prometheus.Collector.
func (c countCollector) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc }

// Collect implements prometheus.Collector.
func (c countCollector) Collect(metrics chan<- prometheus.Metric) {
	for kind, count := range c.counts() {
		metrics <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(count), kind)
	}
}

// forgetKind drops the series of a kind that is no longer reflected.
func (m *metrics) forgetKind(r *reflector) {
	for _, counters := range []*prometheus.CounterVec{m.objects, m.errors, m.fuel, m.writes} {
		counters.DeletePartialMatch(prometheus.Labels{"kind": r.kind.Name})
	}
	for _, histograms := range []*prometheus.HistogramVec{m.chainSeconds, m.crossing} {
		histograms.DeletePartialMatch(prometheus.Labels{"kind": r.kind.Name})
	}
	for _, counters := range []*prometheus.CounterVec{m.items, m.itemErrors} {
		counters.DeletePartialMatch(prometheus.Labels{"reflector_resource": r.kind.Liqo()})
	}
}

// forget drops the series of a namespace. They would otherwise be kept, and exposed, forever.
func (m *metrics) forget(namespace string) {
	for _, counters := range []*prometheus.CounterVec{m.items, m.itemErrors} {
		counters.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
	}
}

// ran records the resources that each plugin of a chain used.
func (m *metrics) ran(kind string, hook host.Hook, outcome *host.Outcome) {
	for i := range outcome.Calls {
		call := &outcome.Calls[i]
		m.chainSeconds.WithLabelValues(kind, hook.String(), call.Plugin).Observe(call.Duration.Seconds())
		m.fuel.WithLabelValues(kind, hook.String(), call.Plugin).Add(float64(call.Fuel))
	}
}
