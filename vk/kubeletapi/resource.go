// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"maps"
	"net/http"
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
)

// serveResource answers /metrics/resource from the provider's metrics API. That tells how many cores a container uses, and a kubelet tells
// the seconds that it has used since its start: they are summed up here, from one question to the next, with the times of the
// provider's measurements. Who divides by those gets what the provider has measured.
func (s *Server) serveResource(w http.ResponseWriter, r *http.Request) {
	pods := s.config.Pods.Pods()
	measured := s.metricsOf(r.Context(), pods)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector(s.counters.collect(pods, measured)))
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
}

// collector of metrics that are there already.
type collector []prometheus.Metric

// Describe nothing: the metrics are checked as they come.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect them.
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

// collect adds measurements and returns the metrics. Containers of pods that are gone are forgotten.
func (c *counters) collect(pods []*corev1.Pod, measured map[types.NamespacedName]podMetrics) (metrics []prometheus.Metric) {
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
		var seconds float64
		for _, container := range m.Containers {
			key := containerKey{pod.UID, container.Name}
			now, known := c.containers[key]
			if !known {
				now = &counter{}
			}
			c.containers[key] = now
			used := usageOf(container, m.Timestamp)
			now.add(float64(used.nanoCores)/nano, m.Timestamp.Time, m.Window.Duration)
			labels := []string{container.Name, pod.Namespace, pod.Name}
			metrics = append(metrics,
				at(now.at, prometheus.MustNewConstMetric(containerCPU, prometheus.CounterValue, now.seconds, labels...)),
				at(m.Timestamp.Time, prometheus.MustNewConstMetric(containerMemory, prometheus.GaugeValue, float64(used.bytes), labels...)),
				at(now.at, prometheus.MustNewConstMetric(containerStart, prometheus.GaugeValue, float64(now.since.UnixNano())/nano, labels...)))
			of.add(used)
			seconds += now.seconds
		}
		metrics = append(metrics,
			at(m.Timestamp.Time, prometheus.MustNewConstMetric(podCPU, prometheus.CounterValue, seconds, pod.Namespace, pod.Name)),
			at(m.Timestamp.Time, prometheus.MustNewConstMetric(podMemory, prometheus.GaugeValue, float64(of.bytes), pod.Namespace, pod.Name)))
		total.add(of)
		window = max(window, m.Window.Duration)
	}
	if len(pods) == 0 { // which is a measurement, too
		total.at.Time = c.clock.Now()
	}
	if total.at.IsZero() {
		return metrics
	}
	c.node.add(float64(total.nanoCores)/nano, total.at.Time, window)
	return append(metrics,
		at(c.node.at, prometheus.MustNewConstMetric(nodeCPU, prometheus.CounterValue, c.node.seconds)),
		at(c.node.at, prometheus.MustNewConstMetric(nodeMemory, prometheus.GaugeValue, float64(total.bytes))))
}

// forget the containers of pods that are gone. A pod that has not been measured this time is not gone.
func (c *counters) forget(pods []*corev1.Pod) {
	present := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		present[pod.UID] = true
	}
	maps.DeleteFunc(c.containers, func(key containerKey, _ *counter) bool { return !present[key.pod] })
}

// mostSkew of the provider's clock. What was measured later than that from now would stop the counters until then.
const mostSkew = time.Minute

// nano of anything.
const nano = 1e9

func at(when time.Time, metric prometheus.Metric) prometheus.Metric {
	return prometheus.NewMetricWithTimestamp(when, metric)
}
