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

// Metrics of /metrics/resource, by the names of a kubelet: what metrics-server, and through it autoscalers and kubectl top, read.
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

// Metrics of /metrics/cadvisor, by the names of cAdvisor: those of its metrics that the metrics API measures, too.
var (
	cadvisorLabels = []string{"container", "image", "namespace", "pod"}

	cadvisorCPU    = prometheus.NewDesc("container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds", append(cadvisorLabels, "cpu"), nil)
	cadvisorMemory = prometheus.NewDesc("container_memory_working_set_bytes", "Current working set of the container in bytes", cadvisorLabels, nil)
	cadvisorError  = prometheus.NewDesc("container_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", nil, nil)
)

// serveResource answers /metrics/resource from the provider's metrics API. That has the cores that a container uses, and a kubelet reports
// the seconds used since its start: they are summed up here, from one request to the next, with the times of the
// provider's measurements. Differences of these give what the provider has measured.
func (s *Server) serveResource(w http.ResponseWriter, r *http.Request) {
	serveMetrics(w, r, s.read(r.Context()).resource())
}

// serveCAdvisor answers /metrics/cadvisor where the provider's kubelets are not asked, from the same measurements.
func (s *Server) serveCAdvisor(w http.ResponseWriter, r *http.Request) {
	serveMetrics(w, r, s.read(r.Context()).cadvisor())
}

// serveNone answers with no metrics at all.
func serveNone(w http.ResponseWriter, r *http.Request) { serveMetrics(w, r, nil) }

// read the counters, after they have counted what the provider has measured since.
func (s *Server) read(ctx context.Context) readings {
	pods := s.config.Pods.Pods()
	measured, complete := s.metricsOf(ctx, pods)
	all := s.counters.count(pods, measured, complete)
	all.complete = complete
	return all
}

func serveMetrics(w http.ResponseWriter, r *http.Request, metrics []prometheus.Metric) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector(metrics))
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
}

// collector of metrics that are there already.
type collector []prometheus.Metric

// Describe implements prometheus.Collector. It sends nothing: the collector is unchecked.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(into chan<- prometheus.Metric) {
	for _, metric := range c {
		into <- metric
	}
}

// counter of the cpu time of something.
type counter struct {
	seconds float64
	// since when it counts, and when it was measured last.
	since, at time.Time
}

// add a measurement: so many cores, on average over a window that ended at a moment. One that is not newer changes nothing.
func (c *counter) add(cores float64, at time.Time, window time.Duration) {
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

// counters are those of a node. Safe for concurrent use.
type counters struct {
	clock clock.PassiveClock

	mu         sync.Mutex
	containers map[containerKey]*counter
	node       counter
}

// containerKey is one container of one pod: the next pod of the name has another UID.
type containerKey struct {
	pod  types.UID
	name string
}

// readings has the values of all counters of a node. It is complete if the provider has answered for all namespaces.
type readings struct {
	pods     []podReading
	node     reading
	complete bool
}

// reading of something: the cpu time that it has used since a moment, and its memory. Each was measured at a moment of its own.
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

// count adds measurements to the counters, and returns their values. Containers of pods that are gone are forgotten. If the
// measurements are complete and no pod is running, the usage of the node is zero.
func (c *counters) count(pods []*corev1.Pod, measured map[types.NamespacedName]podMetrics, complete bool) (all readings) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(pods)
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
			counted := c.container(containerKey{pod.UID, container.Name})
			counted.add(float64(used.nanoCores)/nano, m.Timestamp.Time, m.Window.Duration)
			now.containers = append(now.containers, containerReading{container.Name, counted.read(used)})
			now.seconds += counted.seconds
			of.add(used)
		}
		now.bytes, now.measuredAt, now.countedAt = of.bytes, m.Timestamp.Time, m.Timestamp.Time
		all.pods = append(all.pods, now)
		total.add(of)
		window = max(window, m.Window.Duration)
	}
	if total.at.IsZero() && complete && !slices.ContainsFunc(pods, isRunning) {
		total.at.Time = c.clock.Now()
	}
	if !total.at.IsZero() {
		c.node.add(float64(total.nanoCores)/nano, total.at.Time, window)
		all.node = c.node.read(total)
		all.node.measuredAt = c.node.at
	}
	return all
}

// container returns the counter of a container, a new one if there is none. c.mu is held.
func (c *counters) container(key containerKey) *counter {
	known, found := c.containers[key]
	if !found {
		known = &counter{}
		c.containers[key] = known
	}
	return known
}

// read the counter, beside the memory that was measured last.
func (c *counter) read(used usage) reading {
	return reading{seconds: c.seconds, since: c.since, countedAt: c.at, bytes: used.bytes, measuredAt: used.at.Time}
}

// resource returns the metrics of /metrics/resource.
func (r readings) resource() (metrics []prometheus.Metric) {
	for _, pod := range r.pods {
		for _, container := range pod.containers {
			labels := []string{container.name, pod.Namespace, pod.Name}
			metrics = append(metrics, container.cpu(containerCPU, labels...), container.memory(containerMemory, labels...), container.start(labels...))
		}
		metrics = append(metrics, pod.cpu(podCPU, pod.Namespace, pod.Name), pod.memory(podMemory, pod.Namespace, pod.Name))
	}
	metrics = append(metrics, r.scrapeError(resourceError))
	if r.node.countedAt.IsZero() {
		return metrics
	}
	return append(metrics, r.node.cpu(nodeCPU), r.node.memory(nodeMemory))
}

// scrapeError distinguishes a provider without metrics from a node without running pods.
func (r readings) scrapeError(desc *prometheus.Desc) prometheus.Metric {
	failed := 1.0
	if r.complete {
		failed = 0
	}
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, failed)
}

// cadvisor returns the metrics of /metrics/cadvisor.
func (r readings) cadvisor() (metrics []prometheus.Metric) {
	for _, pod := range r.pods {
		image := maps.Collect(images(pod.Pod))
		for _, container := range pod.containers {
			labels := []string{container.name, image[container.name], pod.Namespace, pod.Name}
			metrics = append(metrics, container.cpu(cadvisorCPU, append(labels, "total")...), container.memory(cadvisorMemory, labels...))
		}
	}
	return append(metrics, r.scrapeError(cadvisorError))
}

func (r reading) cpu(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	return at(r.countedAt, prometheus.MustNewConstMetric(desc, prometheus.CounterValue, r.seconds, labels...))
}

func (r reading) memory(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	return at(r.measuredAt, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(r.bytes), labels...))
}

func (r reading) start(labels ...string) prometheus.Metric {
	return at(r.countedAt, prometheus.MustNewConstMetric(containerStart, prometheus.GaugeValue, float64(r.since.UnixNano())/nano, labels...))
}

// forget the containers of pods that are gone. A pod that has not been measured this time is not gone.
func (c *counters) forget(pods []*corev1.Pod) {
	present := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		present[pod.UID] = true
	}
	maps.DeleteFunc(c.containers, func(key containerKey, _ *counter) bool { return !present[key.pod] })
}

func isRunning(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

// mostSkew of the provider's clock. A measurement dated further ahead would stop the counters until then.
const mostSkew = time.Minute

// nano of anything.
const nano = 1e9

func at(when time.Time, metric prometheus.Metric) prometheus.Metric {
	return prometheus.NewMetricWithTimestamp(when, metric)
}
