// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/refract-project/refract/host"
)

// Metrics contains the metrics of one Manager. The first two have the names and labels that Liqo's dashboards use.
type Metrics struct {
	Items, ItemErrors *prometheus.CounterVec
	Objects           *prometheus.CounterVec
	Errors            *prometheus.CounterVec
	chainSeconds      *prometheus.HistogramVec
	Crossing          *prometheus.HistogramVec
	fuel              *prometheus.CounterVec
	writes            *prometheus.CounterVec
	EventsDropped     prometheus.Counter
	Namespaces        prometheus.Gauge
}

// chainBuckets range from one microsecond to one second. A default plugin usually takes a few microseconds.
var chainBuckets = []float64{1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 2e-2, 1e-1, 1}

// crossingBuckets range from one millisecond to half an hour, because objects wait while the provider is unreachable.
var crossingBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}

// New returns unregistered metrics. Register registers them.
func New() *Metrics {
	liqo := []string{"namespace", "reflector_resource", "cluster_id", "node_name"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Metrics{
		Items:      counter("liqo_virtual_kubelet_reflection_item_counter", "Objects of offloaded namespaces that were reconciled successfully.", liqo...),
		ItemErrors: counter("liqo_virtual_kubelet_reflection_error_counter", "Reconciliations of objects of offloaded namespaces that failed.", liqo...),
		Objects:    counter("refract_reflection_objects_total", "Objects reconciled, by result: unchanged, written, deleted, failed.", "kind", "result"),
		Errors:     counter("refract_reflection_errors_total", "Errors by class and direction.", "kind", "class", "direction"),
		chainSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "refract_plugin_duration_seconds", Help: "Time one plugin took for one object.", Buckets: chainBuckets,
		}, []string{"kind", "hook", "plugin"}),
		Crossing: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "refract_crossing_seconds", Help: "Latency from observing a change in one cluster to writing it to the other.", Buckets: crossingBuckets,
		}, []string{"kind", "direction"}),
		fuel:          counter("refract_plugin_fuel_total", "Fuel that plugins used.", "kind", "hook", "plugin"),
		writes:        counter("refract_api_writes_total", "Writes to the API servers.", "kind", "verb", "destination"),
		EventsDropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "refract_events_dropped_total", Help: "Events not written because there were too many."}),
		Namespaces:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "refract_reflection_namespaces", Help: "Namespaces that are offloaded."}),
	}
}

// Register registers the metrics, unless registerer is nil. It also registers metrics for the reachability of the
// provider, the depths of the queues and the numbers of quarantined objects.
func (m *Metrics) Register(registerer prometheus.Registerer, reachable func() bool, depths, quarantined func() map[string]int) error {
	if registerer == nil {
		return nil
	}
	collectors := []prometheus.Collector{m.Items, m.ItemErrors, m.Objects, m.Errors, m.chainSeconds, m.Crossing, m.fuel, m.writes, m.EventsDropped, m.Namespaces}
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

// countCollector exports one number for each kind. It computes the series when they are scraped, because kinds are
// added and removed at run time.
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

// ForgetKind removes the series of a kind that is no longer reflected.
func (m *Metrics) ForgetKind(kind, liqoName string) {
	for _, counters := range []*prometheus.CounterVec{m.Objects, m.Errors, m.fuel, m.writes} {
		counters.DeletePartialMatch(prometheus.Labels{"kind": kind})
	}
	for _, histograms := range []*prometheus.HistogramVec{m.chainSeconds, m.Crossing} {
		histograms.DeletePartialMatch(prometheus.Labels{"kind": kind})
	}
	for _, counters := range []*prometheus.CounterVec{m.Items, m.ItemErrors} {
		counters.DeletePartialMatch(prometheus.Labels{"reflector_resource": liqoName})
	}
}

// Forget removes the series of a namespace. Otherwise they would be exported forever.
func (m *Metrics) Forget(namespace string) {
	for _, counters := range []*prometheus.CounterVec{m.Items, m.ItemErrors} {
		counters.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
	}
}

// Ran records how much time and fuel each plugin of a chain used.
func (m *Metrics) Ran(kind string, hook host.Hook, outcome *host.Outcome) {
	for i := range outcome.Calls {
		call := &outcome.Calls[i]
		m.chainSeconds.WithLabelValues(kind, hook.String(), call.Plugin).Observe(call.Duration.Seconds())
		m.fuel.WithLabelValues(kind, hook.String(), call.Plugin).Add(float64(call.Fuel))
	}
}

// WriteCounter counts the writes of one kind.
type WriteCounter struct{ writes *prometheus.CounterVec }

// WritesOf returns the WriteCounter of a kind.
func (m *Metrics) WritesOf(kind string) WriteCounter {
	return WriteCounter{m.writes.MustCurryWith(prometheus.Labels{"kind": kind})}
}

// Count counts a write. cluster is "local" or "remote".
func (c WriteCounter) Count(verb, cluster string) { c.writes.WithLabelValues(verb, cluster).Inc() }
