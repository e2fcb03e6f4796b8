// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
)

// somePods is a PodSource with the given pods.
type somePods struct {
	runningPods
	pods []*corev1.Pod
}

func (s somePods) Pods() []*corev1.Pod { return s.pods }

// TestResourceMetrics checks that cores are converted to seconds of CPU time with the provider's times. The increase of
// the CPU time divided by the elapsed time must be the number of cores.
func TestResourceMetrics(t *testing.T) {
	answer := ""
	s := provider(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
	s.counters.clock = testclock.NewFakePassiveClock(time.Unix(5000, 0))
	s.config.Pods = onePod{}
	scrape := func() string {
		t.Helper()
		recorder := httptest.NewRecorder()
		s.serveResource(recorder, httptest.NewRequest(http.MethodGet, "/metrics/resource", nil))
		if recorder.Code != http.StatusOK {
			t.Fatalf("got %d %s", recorder.Code, recorder.Body)
		}
		return recorder.Body.String()
	}
	measured := func(second int, cpu, memory string) {
		at := time.Unix(int64(second), 0).UTC().Format(time.RFC3339)
		answer = fmt.Sprintf(`{"items":[{"metadata":{"name":"web"},"timestamp":%q,"window":"20s","containers":[{"name":"app","usage":{"cpu":%q,"memory":%q}}]}]}`, at, cpu, memory)
	}
	wants := func(lines ...string) {
		t.Helper()
		got := scrape()
		for _, line := range lines {
			if !strings.Contains(got, line+"\n") {
				t.Errorf("no %s in\n%s", line, got)
			}
		}
	}
	labels := `{container="app",namespace="shop",pod="web"}`

	measured(1000, "500m", "1Ki")
	wants("container_cpu_usage_seconds_total"+labels+" 10 1000000", "container_start_time_seconds"+labels+" 980 1000000",
		"container_memory_working_set_bytes"+labels+" 1024 1000000", "node_cpu_usage_seconds_total 10 1000000", "node_memory_working_set_bytes 1024 1000000")
	// There was no measurement since the last scrape, so the values must not change.
	wants("container_cpu_usage_seconds_total" + labels + " 10 1000000")
	measured(1015, "2", "2Ki")
	wants("container_cpu_usage_seconds_total"+labels+" 40 1015000", "container_memory_working_set_bytes"+labels+" 2048 1015000",
		`pod_cpu_usage_seconds_total{namespace="shop",pod="web"} 40 1015000`, "node_cpu_usage_seconds_total 40 1015000")
	measured(900, "64", "2Ki") // the provider's clock was set back, so this measurement must be ignored
	wants("container_cpu_usage_seconds_total" + labels + " 40 1015000")

	measured(5061, "1", "1Ki") // the provider's clock is far ahead, so this measurement must be ignored
	if got := scrape(); strings.Contains(got, "usage_seconds") {
		t.Errorf("a measurement of the future is shown as\n%s", got)
	}
	measured(1020, "1", "2Ki")
	wants("container_cpu_usage_seconds_total" + labels + " 45 1020000")
	answer = `{"items":[]}`
	if got := scrape(); strings.Contains(got, "usage_seconds") {
		t.Errorf("nothing is measured, and shown as\n%s", got)
	}
	s.config.Pods = somePods{}
	wants("node_memory_working_set_bytes 0 5000000", "resource_scrape_error 0")
}

// TestProviderWithoutMetricsIsAScrapeError checks that missing metrics of a provider are reported as a scrape error,
// and not as a node without usage. If no pod is running, the usage of the node must be zero.
func TestProviderWithoutMetricsIsAScrapeError(t *testing.T) {
	pod := func(namespace, name string, phase corev1.PodPhase) *corev1.Pod {
		pod := onePod{}.Pods()[0].DeepCopy()
		pod.Namespace, pod.Name, pod.Status.Phase = namespace, name, phase
		return pod
	}
	const ours = `{"items":[{"metadata":{"name":"web"},"timestamp":"1970-01-01T01:00:00Z","window":"20s","containers":[{"name":"app","usage":{"cpu":"500m","memory":"1Ki"}}]}]}`
	const failed, complete, ofNode = "resource_scrape_error 1\n", "resource_scrape_error 0\n", "node_memory_working_set_bytes "
	tests := []struct {
		name      string
		pods      []*corev1.Pod
		code      int
		answer    string
		want, not string
	}{
		{"no metrics API", []*corev1.Pod{pod("shop", "web", corev1.PodRunning)}, http.StatusNotFound, "404 page not found", failed, ofNode},
		{"no backend", []*corev1.Pod{pod("shop", "web", corev1.PodRunning)}, http.StatusServiceUnavailable, "", failed, ofNode},
		{"forbidden, and nothing runs", []*corev1.Pod{pod("shop", "web", corev1.PodPending)}, http.StatusForbidden, "", failed, ofNode},
		{"an answer that breaks off", []*corev1.Pod{pod("shop", "web", corev1.PodRunning)}, http.StatusOK, strings.TrimSuffix(ours, "]}"), failed, complete},
		{"measured", []*corev1.Pod{pod("shop", "web", corev1.PodRunning)}, http.StatusOK, ours, complete + ofNode, failed},
		{"not measured yet", []*corev1.Pod{pod("shop", "web", corev1.PodRunning)}, http.StatusOK, `{"items":[]}`, complete, ofNode},
		{"pods that do not run", []*corev1.Pod{pod("shop", "web", corev1.PodPending), pod("shop", "job", corev1.PodSucceeded)}, http.StatusOK, `{"items":[]}`, ofNode + "0 ", failed},
		{"no pods", nil, http.StatusNotFound, "", complete + ofNode + "0 ", failed},
	}
	for _, test := range tests {
		s := provider(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/prefix/apis/metrics.liqo.io") {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.WriteHeader(test.code)
			_, _ = io.WriteString(w, test.answer)
		})
		s.config.Pods = somePods{pods: test.pods}
		got := withoutComments(kubeletMetrics(t, s, "/metrics/resource"))
		for _, part := range strings.SplitAfter(test.want, "\n") {
			if !strings.Contains(got, part) {
				t.Errorf("%s: no %q in\n%s", test.name, part, got)
			}
		}
		if strings.Contains(got, test.not) {
			t.Errorf("%s: %q in\n%s", test.name, test.not, got)
		}
		wrong := strings.Contains(test.want, failed)
		if got := kubeletMetrics(t, s, "/metrics/cadvisor"); strings.Contains(got, "container_scrape_error 1\n") != wrong || strings.Contains(got, "container_scrape_error 0\n") == wrong {
			t.Errorf("%s: /metrics/cadvisor is\n%s", test.name, got)
		}
	}
}

func withoutComments(metrics string) string {
	var kept strings.Builder
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, "#") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
