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

// Metrics of /metrics/resource with the names of a kubelet. metrics-server reads them, and through it autoscalers and
// kubectl top.
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

// Metrics of /metrics/cadvisor with the names of cAdvisor, as far as the metrics API measures them, too.
var (
	cadvisorLabels = []string{"container", "image", "namespace", "pod"}

	cadvisorCPU    = prometheus.NewDesc("container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds", append(cadvisorLabels, "cpu"), nil)
	cadvisorMemory = prometheus.NewDesc("container_memory_working_set_bytes", "Current working set of the container in bytes", cadvisorLabels, nil)
	cadvisorError  = prometheus.NewDesc("container_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", nil, nil)
)

// serveResource responds to /metrics/resource with data of the provider's metrics API. The API has the current CPU usage
// of a container, in cores, while a kubelet reports the total CPU time in seconds. So the total is computed here, from
// one request to the next, with the times of the provider's measurements. The rate of the total equals the provider's
// measurements.
func (s *Server) serveResource(w http.ResponseWriter, r *http.Request) {
	serveMetrics(w, r, s.readCounters(r.Context()).resourceMetrics())
}

// serveCAdvisor responds to /metrics/cadvisor from the same measurements if the provider's kubelets are not scraped.
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

// collector exports existing metrics.
type collector []prometheus.Metric

// Describe implements prometheus.Collector. It sends nothing: the collector is unchecked.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(into chan<- prometheus.Metric) {
	for _, metric := range c {
		into <- metric
	}
}

// counter counts the CPU time of a container or node.
type counter struct {
	seconds float64
	// since is the start of the count, and at the time of the last measurement.
	since, at time.Time
}

// addMeasurement adds a measurement: the average number of cores in the window that ended at the given time. Measurements that are
// not newer are ignored.
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

// counters has the counters of a node. Safe for concurrent use.
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

// readings has the values of all counters of a node. It is complete if the provider has responded for all namespaces.
type readings struct {
	pods     []podReading
	node     reading
	complete bool
}

// reading has the CPU time since a point in time, and the memory usage. Each was measured at its own time.
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

// countUsage adds measurements to the counters, and returns their values. Containers of deleted pods are dropped. If the
// measurements are complete and no pod is running, the usage of the node is zero.
func (c *counters) countUsage(pods []*corev1.Pod, measured map[types.NamespacedName]podMetrics, complete bool) (all readings) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropDeleted(pods)
	var total usage
	var window time.Duration
	for _, pod := range pods {
		m, found := measured[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
		if !found || m.Timestamp.IsZero() || m.Timestamp.After(c.clock.Now().Add(mostSkew)) {
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

// containerCounter returns the counter of a container, and creates it if there is none. c.mu must be held.
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

// resourceMetrics returns the metrics of /metrics/resource.
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

// scrapeError distinguishes a provider without metrics from a node without running pods.
func (r readings) scrapeError(desc *prometheus.Desc) prometheus.Metric {
	failed := 1.0
	if r.complete {
		failed = 0
	}
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, failed)
}

// cadvisorMetrics returns the metrics of /metrics/cadvisor.
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

// dropDeleted drops the containers of deleted pods. A pod without a measurement is not necessarily deleted.
func (c *counters) dropDeleted(pods []*corev1.Pod) {
	present := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		present[pod.UID] = true
	}
	maps.DeleteFunc(c.containers, func(key containerKey, _ *counter) bool { return !present[key.pod] })
}

func isRunning(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

// mostSkew is the maximum skew of the provider's clock. A measurement with a later time would stop the counters until
// then.
const mostSkew = time.Minute

// nano converts nanocores to cores.
const nano = 1e9

func withTime(when time.Time, metric prometheus.Metric) prometheus.Metric {
	return prometheus.NewMetricWithTimestamp(when, metric)
}
