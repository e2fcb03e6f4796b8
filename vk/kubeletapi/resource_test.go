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

// somePods are those of a node.
type somePods struct {
	runningPods
	pods []*corev1.Pod
}

func (s somePods) Pods() []*corev1.Pod { return s.pods }

// Cores become seconds of cpu time, with the times of the provider: who divides gets the cores again.
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
	wants("container_cpu_usage_seconds_total" + labels + " 10 1000000") // asked again before the provider has measured
	measured(1015, "2", "2Ki")
	wants("container_cpu_usage_seconds_total"+labels+" 40 1015000", "container_memory_working_set_bytes"+labels+" 2048 1015000",
		`pod_cpu_usage_seconds_total{namespace="shop",pod="web"} 40 1015000`, "node_cpu_usage_seconds_total 40 1015000")
	measured(900, "64", "2Ki") // its clock was set back
	wants("container_cpu_usage_seconds_total" + labels + " 40 1015000")

	measured(5061, "1", "1Ki") // its clock is far ahead
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
	wants("node_memory_working_set_bytes 0 5000000")
}
