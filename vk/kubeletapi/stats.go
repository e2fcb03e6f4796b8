// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// metricsTimeout limits the total time of the requests to the provider's metrics API for one summary.
	// metricsRequests limits the number of concurrent requests.
	metricsTimeout  = 10 * time.Second
	metricsRequests = 4
	// maxMetricsBytes is the maximum size of one response in bytes. It is sufficient for tens of thousands of pods.
	maxMetricsBytes = 64 << 20
)

// podMetrics contains the fields of PodMetrics (metrics.k8s.io/v1beta1) that are used here.
type podMetrics struct {
	Metadata   metav1.ObjectMeta  `json:"metadata"`
	Timestamp  metav1.Time        `json:"timestamp"`
	Window     metav1.Duration    `json:"window"`
	Containers []containerMetrics `json:"containers"`
}

type containerMetrics struct {
	Name  string                                    `json:"name"`
	Usage map[corev1.ResourceName]resource.Quantity `json:"usage"`
}

// serveSummary responds to /stats/summary with data from the provider's metrics API. If there are no metrics of a pod,
// the pod is omitted, because the metrics of all other pods are still useful.
func (s *Server) serveSummary(w http.ResponseWriter, r *http.Request) {
	pods := s.config.Pods.Pods()
	measured, _ := s.metricsOf(r.Context(), pods)
	writeJSON(w, r, summarizePods(s.config.NodeName, pods, measured))
}

// metricsOf returns the provider's metrics of pods, keyed by the local names of the pods. complete reports whether the
// provider has responded for all namespaces.
func (s *Server) metricsOf(ctx context.Context, pods []*corev1.Pod) (found map[types.NamespacedName]podMetrics, complete bool) {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(metricsRequests)
	var mu sync.Mutex
	found = map[types.NamespacedName]podMetrics{}
	asked := map[string]map[string]*corev1.Pod{}
	for _, pod := range pods {
		if asked[pod.Namespace] == nil {
			asked[pod.Namespace] = map[string]*corev1.Pod{}
		}
		asked[pod.Namespace][pod.Name] = pod
	}
	for local, remote := range s.offloadedNamespaces(pods) {
		group.Go(func() error {
			items, err := s.remoteMetrics(ctx, remote, asked[local])
			if err != nil {
				log.FromContext(ctx).V(1).Info("Cannot read metrics from the provider", "namespace", remote, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			for name, item := range items {
				found[types.NamespacedName{Namespace: local, Name: name}] = item
			}
			return err
		})
	}
	return found, group.Wait() == nil
}

// offloadedNamespaces maps the namespaces of pods to their remote namespaces.
func (s *Server) offloadedNamespaces(pods []*corev1.Pod) map[string]string {
	namespaces := map[string]string{}
	for _, pod := range pods {
		if remote, offloaded := s.config.Namespaces.Remote(pod.Namespace); offloaded {
			namespaces[pod.Namespace] = remote
		}
	}
	return namespaces
}

// remoteMetrics returns the metrics of pods in one namespace of the provider, by name. If reading fails, it returns
// the error and the metrics that were read until then.
func (s *Server) remoteMetrics(ctx context.Context, namespace string, pods map[string]*corev1.Pod) (map[string]podMetrics, error) {
	target := s.config.Remote.URL.JoinPath("apis", "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := s.config.Remote.Transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // an error when closing is harmless, because the body was read
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the metrics API answered %s", response.Status)
	}
	found := map[string]podMetrics{}
	err = eachItem(io.LimitReader(response.Body, maxMetricsBytes), func(item podMetrics) {
		if pod := pods[item.Metadata.Name]; pod != nil {
			found[pod.Name] = podMetrics{Timestamp: item.Timestamp, Window: item.Window, Containers: containersOf(pod, item.Containers)}
		}
	})
	if err != nil {
		return found, fmt.Errorf("reading %s, %w", target.Path, err)
	}
	return found, nil
}

// eachItem decodes a list item by item to limit the use of memory: the provider controls the length of the list, and
// most items may be pods of other clusters.
func eachItem(list io.Reader, do func(podMetrics)) error {
	decoder := json.NewDecoder(list)
	if err := expectDelim(decoder, json.Delim('{')); err != nil {
		return err
	}
	for decoder.More() {
		field, err := decoder.Token()
		if err != nil {
			return err
		}
		if field != "items" {
			var skipped json.RawMessage
			if err := decoder.Decode(&skipped); err != nil {
				return err
			}
			continue
		}
		switch token, err := decoder.Token(); {
		case err != nil:
			return err
		// A null value counts as an empty list, because Go encodes a nil slice as null.
		case token == nil:
			continue
		case token != json.Delim('['):
			return fmt.Errorf("%v where [ was expected", token)
		}
		for decoder.More() {
			var item podMetrics
			if err := decoder.Decode(&item); err != nil {
				return err
			}
			do(item)
		}
		if err := expectDelim(decoder, json.Delim(']')); err != nil {
			return err
		}
	}
	return expectDelim(decoder, json.Delim('}'))
}

func expectDelim(decoder *json.Decoder, want json.Delim) error {
	token, err := decoder.Token()
	if err == nil && token != want {
		err = fmt.Errorf("%v where %v was expected", token, want)
	}
	return err
}

// containersOf returns the measured containers that belong to the pod, without duplicates.
func containersOf(pod *corev1.Pod, measured []containerMetrics) []containerMetrics {
	var kept []containerMetrics
	for name := range containerImages(pod) {
		if at := slices.IndexFunc(measured, func(m containerMetrics) bool { return m.Name == name }); at >= 0 {
			kept = append(kept, measured[at])
		}
	}
	return kept
}

// containerImages yields the name and image of each container of a pod, in the order the containers start.
func containerImages(pod *corev1.Pod) iter.Seq2[string, string] {
	return func(yield func(name, image string) bool) {
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				if !yield(containers[i].Name, containers[i].Image) {
					return
				}
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			if !yield(pod.Spec.EphemeralContainers[i].Name, pod.Spec.EphemeralContainers[i].Image) {
				return
			}
		}
	}
}

// summarizePods combines the local pods with their metrics. The usage of the node is the sum of the pods' usage.
func summarizePods(nodeName string, pods []*corev1.Pod, metrics map[types.NamespacedName]podMetrics) *stats.Summary {
	summary := &stats.Summary{Node: stats.NodeStats{NodeName: nodeName}, Pods: []stats.PodStats{}}
	var total usage
	for _, pod := range pods {
		if summary.Node.StartTime.IsZero() || pod.CreationTimestamp.Before(&summary.Node.StartTime) {
			summary.Node.StartTime = pod.CreationTimestamp
		}
		measured, found := metrics[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
		if !found {
			continue
		}
		podStats, used := summarizePod(pod, measured)
		summary.Pods = append(summary.Pods, podStats)
		total.addUsage(used)
	}
	summary.Node.CPU, summary.Node.Memory = total.statsOf()
	return summary
}

func summarizePod(pod *corev1.Pod, measured podMetrics) (stats.PodStats, usage) {
	podStats := stats.PodStats{
		PodRef:     stats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
		StartTime:  pod.CreationTimestamp,
		Containers: []stats.ContainerStats{},
	}
	total := usage{at: measured.Timestamp}
	for _, container := range measured.Containers {
		used := usageOf(container, measured.Timestamp)
		containerStats := stats.ContainerStats{Name: container.Name, StartTime: pod.CreationTimestamp}
		containerStats.CPU, containerStats.Memory = used.statsOf()
		podStats.Containers = append(podStats.Containers, containerStats)
		total.addUsage(used)
	}
	podStats.CPU, podStats.Memory = total.statsOf()
	return podStats, total
}

// usage contains the usage of CPU (nanocores) and memory (bytes) at a point in time.
type usage struct {
	at        metav1.Time
	nanoCores uint64
	bytes     uint64
}

func usageOf(container containerMetrics, at metav1.Time) usage {
	cpu, memory := container.Usage[corev1.ResourceCPU], container.Usage[corev1.ResourceMemory]
	return usage{at: at, nanoCores: uint64(max(0, cpu.ScaledValue(resource.Nano))), bytes: uint64(max(0, memory.Value()))}
}

// addUsage adds another usage to u. The later of the two times is kept.
func (u *usage) addUsage(other usage) {
	u.nanoCores += other.nanoCores
	u.bytes += other.bytes
	if u.at.Before(&other.at) {
		u.at = other.at
	}
}

// statsOf returns the usage as CPU and memory statistics. A value that was not measured is nil and not zero.
func (u *usage) statsOf() (*stats.CPUStats, *stats.MemoryStats) {
	if u.at.IsZero() {
		return nil, nil
	}
	nanoCores, bytes := u.nanoCores, u.bytes
	return &stats.CPUStats{Time: u.at, UsageNanoCores: &nanoCores},
		&stats.MemoryStats{Time: u.at, UsageBytes: &bytes, WorkingSetBytes: &bytes}
}
