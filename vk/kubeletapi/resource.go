// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Metrics of /metrics/resource. They have the same names as in a kubelet, because metrics-server reads them for
// autoscalers and kubectl top.
var (
	containerLabels = []string{"container", "namespace", "pod"}
	podLabels       = []string{"namespace", "pod"}

	containerCPU    = prometheus.NewDesc("container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds", containerLabels, nil)
	containerMemory = prometheus.NewDesc("container_memory_working_set_bytes", "Current working set of the container in bytes", containerLabels, nil)
	containerStart  = prometheus.NewDesc("container_start_time_seconds", "Since when the cpu time of the container is counted, in seconds since unix epoch", containerLabels, nil)
	podCPU          = prometheus.NewDesc("pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds", podLabels, nil)
	podMemory       = prometheus.NewDesc("pod_memory_working_set_bytes", "Current working set of the pod in bytes", podLabels, nil)
	nodeCPU         = prometheus.NewDesc("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the offloaded pods of the node in core-seconds", nil, nil)
	nodeMemory      = prometheus.NewDesc("node_memory_working_set_bytes", "Current working set of the offloaded pods of the node in bytes", nil, nil)
	resourceError   = prometheus.NewDesc("resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", nil, nil)
)

// Metrics of /metrics/cadvisor. They have the same names as in cAdvisor. Only values that the provider's metrics API
// measures are available.
var (
	cadvisorLabels = []string{"container", "image", "namespace", "pod"}

	cadvisorCPU    = prometheus.NewDesc("container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds", append(cadvisorLabels, "cpu"), nil)
	cadvisorMemory = prometheus.NewDesc("container_memory_working_set_bytes", "Current working set of the container in bytes", cadvisorLabels, nil)
	cadvisorError  = prometheus.NewDesc("container_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", nil, nil)
)

// serveResource responds to /metrics/resource with data from the provider's metrics API. This API reports the current
// CPU usage of a container in cores, while a kubelet reports the total CPU time in seconds. Therefore this server adds
// up the CPU time from one request to the next. It uses the times of the provider's measurements, so that the rate of
// the total equals the measured usage.
func (s *Server) serveResource(w http.ResponseWriter, r *http.Request) {
	serveMetrics(w, r, s.readCounters(r.Context()).resourceMetrics())
}

// serveCAdvisor responds to /metrics/cadvisor with the same measurements as serveResource. It is used if the metrics of
// the provider's kubelets cannot be read.
func (s *Server) serveCAdvisor(w http.ResponseWriter, r *http.Request) {
	serveMetrics(w, r, s.readCounters(r.Context()).cadvisorMetrics())
}

// serveNone responds without any metrics.
func serveNone(w http.ResponseWriter, r *http.Request) { serveMetrics(w, r, nil) }

// readCounters updates the counters with the provider's latest measurements, and returns their values.
func (s *Server) readCounters(ctx context.Context) readings {
	pods := s.config.Pods.Pods()
	measured, complete := s.metricsOf(ctx, pods)
	all := s.counters.countUsage(pods, measured, complete)
	all.complete = complete
	return all
}

func serveMetrics(w http.ResponseWriter, r *http.Request, metrics []prometheus.Metric) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector(metrics))
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
}

// collector exports a fixed list of metrics.
type collector []prometheus.Metric

// Describe implements prometheus.Collector. It sends no descriptors, so Prometheus does not check the metrics of this
// collector.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(into chan<- prometheus.Metric) {
	for _, metric := range c {
		into <- metric
	}
}

// counter adds up the CPU time of a container or node.
type counter struct {
	seconds float64
	// since is the time at which the counter started, and at is the time of the last measurement.
	since, at time.Time
}

// addMeasurement adds a measurement, which is the average number of cores in the window that ended at the given time.
// Measurements that are not newer than the last one are ignored.
func (c *counter) addMeasurement(cores float64, at time.Time, window time.Duration) {
	switch {
	case c.at.IsZero():
		c.since, c.seconds = at.Add(-window), cores*window.Seconds()
	case at.After(c.at):
		c.seconds += cores * at.Sub(c.at).Seconds()
	default:
		return
	}
	c.at = at
}

// counters contains the counters of a node. It is safe for concurrent use.
type counters struct {
	clock clock.PassiveClock

	mu         sync.Mutex
	containers map[containerKey]*counter
	node       counter
}

// containerKey identifies one container of one pod. A recreated pod has another UID.
type containerKey struct {
	pod  types.UID
	name string
}

// readings contains the values of all counters of a node. The field complete reports whether the provider has responded
// for all namespaces.
type readings struct {
	pods     []podReading
	node     reading
	complete bool
}

// reading contains the CPU time since a point in time, and the memory usage. Both values may have been measured at
// different times.
type reading struct {
	seconds          float64
	since, countedAt time.Time
	bytes            uint64
	measuredAt       time.Time
}

type podReading struct {
	*corev1.Pod
	reading
	containers []containerReading
}

type containerReading struct {
	name string
	reading
}

// countUsage adds measurements to the counters, and returns their values. The counters of deleted pods are dropped.
// If the measurements are complete and no pod is running, the usage of the node is known to be zero.
func (c *counters) countUsage(pods []*corev1.Pod, measured map[types.NamespacedName]podMetrics, complete bool) (all readings) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropDeleted(pods)
	var total usage
	var window time.Duration
	for _, pod := range pods {
		m, found := measured[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
		if !found || m.Timestamp.IsZero() || m.Timestamp.After(c.clock.Now().Add(maxClockSkew)) {
			continue
		}
		of := usage{at: m.Timestamp}
		now := podReading{Pod: pod}
		for _, container := range m.Containers {
			used := usageOf(container, m.Timestamp)
			counted := c.containerCounter(containerKey{pod.UID, container.Name})
			counted.addMeasurement(float64(used.nanoCores)/nano, m.Timestamp.Time, m.Window.Duration)
			now.containers = append(now.containers, containerReading{container.Name, counted.readValue(used)})
			now.seconds += counted.seconds
			of.addUsage(used)
		}
		now.bytes, now.measuredAt, now.countedAt = of.bytes, m.Timestamp.Time, m.Timestamp.Time
		all.pods = append(all.pods, now)
		total.addUsage(of)
		window = max(window, m.Window.Duration)
	}
	if total.at.IsZero() && complete && !slices.ContainsFunc(pods, isRunning) {
		total.at.Time = c.clock.Now()
	}
	if !total.at.IsZero() {
		c.node.addMeasurement(float64(total.nanoCores)/nano, total.at.Time, window)
		all.node = c.node.readValue(total)
		all.node.measuredAt = c.node.at
	}
	return all
}

// containerCounter returns the counter of a container, and creates it if necessary. The caller must hold c.mu.
func (c *counters) containerCounter(key containerKey) *counter {
	known, found := c.containers[key]
	if !found {
		known = &counter{}
		c.containers[key] = known
	}
	return known
}

// readValue returns the value of the counter, with the last measured memory usage.
func (c *counter) readValue(used usage) reading {
	return reading{seconds: c.seconds, since: c.since, countedAt: c.at, bytes: used.bytes, measuredAt: used.at.Time}
}

// resourceMetrics returns the metrics that /metrics/resource serves.
func (r readings) resourceMetrics() (metrics []prometheus.Metric) {
	for _, pod := range r.pods {
		for _, container := range pod.containers {
			labels := []string{container.name, pod.Namespace, pod.Name}
			metrics = append(metrics, container.cpuMetric(containerCPU, labels...), container.memoryMetric(containerMemory, labels...), container.startMetric(labels...))
		}
		metrics = append(metrics, pod.cpuMetric(podCPU, pod.Namespace, pod.Name), pod.memoryMetric(podMemory, pod.Namespace, pod.Name))
	}
	metrics = append(metrics, r.scrapeError(resourceError))
	if r.node.countedAt.IsZero() {
		return metrics
	}
	return append(metrics, r.node.cpuMetric(nodeCPU), r.node.memoryMetric(nodeMemory))
}

// scrapeError returns the metric that reports whether reading the metrics has failed. It distinguishes a provider
// without a metrics API from a node without running pods.
func (r readings) scrapeError(desc *prometheus.Desc) prometheus.Metric {
	failed := 1.0
	if r.complete {
		failed = 0
	}
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, failed)
}

// cadvisorMetrics returns the metrics that /metrics/cadvisor serves.
func (r readings) cadvisorMetrics() (metrics []prometheus.Metric) {
	for _, pod := range r.pods {
		image := maps.Collect(containerImages(pod.Pod))
		for _, container := range pod.containers {
			labels := []string{container.name, image[container.name], pod.Namespace, pod.Name}
			metrics = append(metrics, container.cpuMetric(cadvisorCPU, append(labels, "total")...), container.memoryMetric(cadvisorMemory, labels...))
		}
	}
	return append(metrics, r.scrapeError(cadvisorError))
}

func (r reading) cpuMetric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	return withTime(r.countedAt, prometheus.MustNewConstMetric(desc, prometheus.CounterValue, r.seconds, labels...))
}

func (r reading) memoryMetric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	return withTime(r.measuredAt, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(r.bytes), labels...))
}

func (r reading) startMetric(labels ...string) prometheus.Metric {
	return withTime(r.countedAt, prometheus.MustNewConstMetric(containerStart, prometheus.GaugeValue, float64(r.since.UnixNano())/nano, labels...))
}

// dropDeleted removes the counters of deleted pods. A pod without a measurement was not necessarily deleted.
func (c *counters) dropDeleted(pods []*corev1.Pod) {
	present := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		present[pod.UID] = true
	}
	maps.DeleteFunc(c.containers, func(key containerKey, _ *counter) bool { return !present[key.pod] })
}

func isRunning(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

// maxClockSkew is how far the provider's clock may be ahead. A measurement with a later time is ignored, because the
// counter would not count until that time.
const maxClockSkew = time.Minute

// nano is the number of nanocores in a core.
const nano = 1e9

func withTime(when time.Time, metric prometheus.Metric) prometheus.Metric {
	return prometheus.NewMetricWithTimestamp(when, metric)
}
