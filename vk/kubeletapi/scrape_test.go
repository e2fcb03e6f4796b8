// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	testclock "k8s.io/utils/clock/testing"
)

// boundPods is a PodSource with the pods that are bound to a node, by name.
type boundPods struct{ onePod }

func (p boundPods) Pod(namespace, name string) (*corev1.Pod, bool) {
	for _, pod := range p.Pods() {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

// kubeletMetrics returns the response of the server s to a GET request for path.
func kubeletMetrics(t *testing.T, s *Server, path string) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	s.newMux().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	if recorder.Code != http.StatusOK {
		t.Fatalf("%s is answered by %d %s", path, recorder.Code, recorder.Body)
	}
	return recorder.Body.String()
}

// TestScrapedMetricsAreThoseOfOurPods checks that metrics of the provider's kubelets about pods of this node are
// forwarded unchanged, and that all other metrics in the response are dropped.
func TestScrapedMetricsAreThoseOfOurPods(t *testing.T) {
	const ours = `container_fs_usage_bytes{container="app",device="/dev/vda",id="/kubepods/x",image="nginx",name="4",namespace="shop",pod="web"} 8192 1690000000000`
	answers := map[string]string{
		"/prefix/apis/metrics.liqo.io/v1beta1/scrape/rome/metrics/cadvisor": strings.Join([]string{
			"# HELP container_fs_usage_bytes Number of bytes that are consumed by the container on this filesystem.",
			"# TYPE container_fs_usage_bytes gauge",
			`container_fs_usage_bytes{container="app",namespace="bank",pod="web"} 1`,
			`container_fs_usage_bytes{container="app",namespace="shop",pod="other"} 2`,
			`container_fs_usage_bytes{container="app",namespace="shop",pod="web",namespace="bank"} 3`,
			`container_fs_usage_bytes{namespace="shop"} 4`,
			ours,
			"# HELP machine_cpu_cores Number of logical CPU cores.",
			"# TYPE machine_cpu_cores gauge",
			"machine_cpu_cores 64",
			`pod="web" namespace="shop" {`,
			`up{namespace="shop",pod="web"} 1` + "\r" + `up{namespace="bank",pod="web"} 0`,
		}, "\n"),
		"/prefix/apis/metrics.liqo.io/v1beta1/scrape/rome/metrics/probes": `prober_probe_total{container="app",namespace="shop",pod="web",probe_type="Liveness"} 7`,
	}
	s := provider(t, func(w http.ResponseWriter, r *http.Request) {
		answer, found := answers[r.URL.Path]
		if !found {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, answer)
	})
	s.config.Pods = boundPods{}

	want := "# HELP container_fs_usage_bytes Number of bytes that are consumed by the container on this filesystem.\n# TYPE container_fs_usage_bytes gauge\n" + ours + "\n"
	if diff := cmp.Diff(want, kubeletMetrics(t, s, "/metrics/cadvisor")); diff != "" {
		t.Errorf("/metrics/cadvisor (-want +got):\n%s", diff)
	}
	want = answers["/prefix/apis/metrics.liqo.io/v1beta1/scrape/rome/metrics/probes"] + "\n"
	if diff := cmp.Diff(want, kubeletMetrics(t, s, "/metrics/probes")); diff != "" {
		t.Errorf("/metrics/probes (-want +got):\n%s", diff)
	}
}

// TestMetricsOfAKubeletArePassedOn checks that all metrics of a kubelet about a pod are forwarded unchanged.
func TestMetricsOfAKubeletArePassedOn(t *testing.T) {
	for file, families := range map[string]string{"cadvisor.txt": "container_", "probes.txt": "prober_probe_"} {
		served, err := os.ReadFile("testdata/" + file)
		require.NoError(t, err)
		s := provider(t, nil)
		s.config.Pods = boundPods{}
		var out strings.Builder
		require.NoError(t, s.filterSamples(&out, bytes.NewReader(served), families))
		if diff := cmp.Diff(string(served), out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

// TestForgedSamplesAreDropped checks that a provider cannot forge samples of other jobs, targets, times or metric
// families.
func TestForgedSamplesAreDropped(t *testing.T) {
	now := time.Unix(5000, 0)
	s := provider(t, nil)
	s.counters.clock = testclock.NewFakePassiveClock(now)
	s.config.Pods = boundPods{}
	const of = `namespace="shop",pod="web"`
	for line, passes := range map[string]bool{
		`container_a{` + of + `} 1`:                 true,
		`{"container_a",` + of + `} 1`:              false,
		`up{` + of + `,job="node-exporter"} 0`:      false,
		`up{` + of + `} 0`:                          false,
		`ALERTS{` + of + `,alertname="Watchdog"} 1`: false,
		`apiserver_request_total{` + of + `} 1`:     false,
		// This family is only served at another path, /metrics/probes.
		`prober_probe_total{` + of + `} 1`:                                                              false,
		`container_a{` + of + `,job="apiserver"} 1`:                                                     false,
		`container_a{` + of + `,instance="10.0.0.1:6443"} 1`:                                            false,
		`container_a{` + of + `,node="worker-1"} 1`:                                                     false,
		`container_a{` + of + `,__replica__="a"} 1`:                                                     false,
		`container_a{` + of + `,__name__="up"} 1`:                                                       false,
		`container_a{` + of + `,"job"="apiserver"} 1`:                                                   false,
		`container_a{` + of + fmt.Sprintf(`} 1 %d`, now.Add(maxClockSkew).UnixMilli()):                  true,
		`container_a{` + of + fmt.Sprintf(`} 1 %d`, now.Add(maxClockSkew+time.Millisecond).UnixMilli()): false,
		`container_a{` + of + `,image="a\nb"} 1`:                                                        false,
		"container_a{" + of + ",image=\"\x1b[2K\"} 1":                                                   false,
		"container_a{" + of + ",image=\"a\u202eb\"} 1":                                                  false,
		"container_a{" + of + "} 1 \r":                                                                  false,
	} {
		var out strings.Builder
		require.NoError(t, s.filterSamples(&out, strings.NewReader("# TYPE up counter\n# HELP container_b \x1b[2K\n"+line+"\n"), "container_"))
		if want := map[bool]string{true: line + "\n"}[passes]; out.String() != want {
			t.Errorf("%q becomes %q", line, out.String())
		}
	}
}

// TestMetricsOfCAdvisorWithoutAnAgent checks that the values of the metrics API are served under the names of
// cAdvisor if the provider does not serve the metrics of its kubelets, or denies access.
func TestMetricsOfCAdvisorWithoutAnAgent(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusForbidden, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			s := provider(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "metrics.liqo.io") {
					w.WriteHeader(code)
					return
				}
				_, _ = io.WriteString(w, `{"items":[{"metadata":{"name":"web"},"timestamp":"1970-01-01T00:16:40Z","window":"20s","containers":[{"name":"app","usage":{"cpu":"500m","memory":"1Ki"}}]}]}`)
			})
			s.counters.clock = testclock.NewFakePassiveClock(time.Unix(5000, 0))
			s.config.Pods = boundPods{}
			got := kubeletMetrics(t, s, "/metrics/cadvisor")
			for _, line := range []string{
				`container_cpu_usage_seconds_total{container="app",cpu="total",image="nginx",namespace="shop",pod="web"} 10 1000000`,
				`container_memory_working_set_bytes{container="app",image="nginx",namespace="shop",pod="web"} 1024 1000000`,
			} {
				if !strings.Contains(got, line+"\n") {
					t.Errorf("no %s in\n%s", line, got)
				}
			}
			if got := kubeletMetrics(t, s, "/metrics/probes"); got != "" {
				t.Errorf("/metrics/probes is\n%s", got)
			}
		})
	}
}

// TestScrapedLinesAreBounded checks that an endless line does not fill the memory, because reading stops at the maximum
// length.
func TestScrapedLinesAreBounded(t *testing.T) {
	s := provider(t, nil)
	s.config.Pods = boundPods{}
	var out strings.Builder
	first := `container_a{namespace="shop",pod="web"} 1` + "\n"
	if err := s.filterSamples(&out, io.MultiReader(strings.NewReader(first), strings.NewReader(strings.Repeat("x", 2*maxSampleBytes))), "container_"); err == nil {
		t.Error("a line longer than the limit is no error")
	}
	if out.String() != first {
		t.Errorf("what came before is %q", out.String())
	}
	if err := s.filterSamples(io.Discard, strings.NewReader(strings.Repeat("# TYPE container_a gauge\n", maxSampleBytes)), "container_"); err == nil {
		t.Error("comments without end are no error")
	}
}
