// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestSummaryLeavesOutWhatIsNotKnown(t *testing.T) {
	begin := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	measured := metav1.NewTime(begin.Add(time.Hour))
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: begin}}
	}
	usage := func(cpu, memory string) map[corev1.ResourceName]resource.Quantity {
		return map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	got := summarizePods("milan", []*corev1.Pod{pod("web"), pod("new")}, map[types.NamespacedName]podMetrics{
		{Namespace: "shop", Name: "web"}: {Timestamp: measured, Containers: []containerMetrics{
			{Name: "app", Usage: usage("250m", "1Mi")}, {Name: "sidecar", Usage: usage("1500n", "1Ki")},
		}},
	})
	if len(got.Pods) != 1 || got.Pods[0].PodRef.UID != "web" || len(got.Pods[0].Containers) != 2 {
		t.Fatalf("pods: %+v", got.Pods)
	}
	if cpu, memory := *got.Node.CPU.UsageNanoCores, *got.Node.Memory.WorkingSetBytes; cpu != 250_001_500 || memory != 1<<20+1<<10 {
		t.Errorf("the node uses %d nanocores and %d bytes", cpu, memory)
	}
	if !got.Node.CPU.Time.Equal(&measured) || !got.Node.StartTime.Equal(&begin) {
		t.Errorf("the node was measured at %s and began at %s", got.Node.CPU.Time, got.Node.StartTime)
	}
}

func TestNothingMeasuredIsNoUsage(t *testing.T) {
	pods := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}}
	if got := summarizePods("milan", pods, nil); got.Node.CPU != nil || got.Node.Memory != nil || len(got.Pods) != 0 {
		t.Errorf("got %+v", got)
	}
}

// onePod is a PodSource whose list contains only the pod shop/web.
type onePod struct{ runningPods }

func (onePod) Pods() []*corev1.Pod {
	return []*corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "nginx"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}}
}

// TestSummaryHoldsPodsOfThisNodeOnly checks that the summary omits pods of other clusters, and containers that the
// local pod does not have, even if they are in the provider's response.
func TestSummaryHoldsPodsOfThisNodeOnly(t *testing.T) {
	usage := `"timestamp":"2026-01-01T00:00:00Z","containers":[{"name":"app","usage":{"cpu":"1m","memory":"1Ki"}},{"name":"made-up","usage":{"cpu":"5","memory":"1Gi"}},{"name":"app","usage":{"cpu":"7"}}]`
	s := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"kind":"PodMetricsList","metadata":{},"items":[{"metadata":{"name":"stranger"},`+usage+`},{"metadata":{"name":"web"},`+usage+`}]}`)
	})
	pods := onePod{}.Pods()
	s.config.Pods = onePod{}
	metrics, _ := s.metricsOf(t.Context(), pods)
	if len(metrics) != 1 {
		t.Errorf("kept the metrics of %d pods, want those of one", len(metrics))
	}
	got := summarizePods("milan", pods, metrics)
	if len(got.Pods) != 1 || len(got.Pods[0].Containers) != 1 || *got.Node.CPU.UsageNanoCores != 1_000_000 {
		t.Errorf("got %+v", got.Pods)
	}
}

// TestSummaryOfHalfAnAnswer checks that, if a response ends early, the summary contains the metrics that were read
// before.
func TestSummaryOfHalfAnAnswer(t *testing.T) {
	s := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"items":[{"metadata":{"name":"web"},"timestamp":"2026-01-01T00:00:00Z","containers":[]},{"meta`)
	})
	if got, complete := s.metricsOf(t.Context(), onePod{}.Pods()); len(got) != 1 || complete {
		t.Errorf("got %v, complete: %t", got, complete)
	}
}

func TestSummaryOfProviders(t *testing.T) {
	tests := []struct{ name, answer, want string }{
		{"with metrics", `{"items":[{"metadata":{"name":"web"},"timestamp":"2026-01-01T00:00:00Z","containers":[{"name":"app","usage":{"cpu":"1m","memory":"1Ki"}}]}]}`, `"usageNanoCores":1000000`},
		{"without metrics", `{"items":[]}`, `"pods":[]`},
		{"with none", `{"metadata":{},"items":null}`, `"pods":[]`},
		{"that answer nonsense", `{"items":"`, `"pods":[]`},
	}
	for _, test := range tests {
		s := provider(t, func(w http.ResponseWriter, r *http.Request) {
			if want := "/prefix/apis/metrics.k8s.io/v1beta1/namespaces/shop-remote/pods"; r.URL.Path != want {
				t.Errorf("asked for %s, want %s", r.URL.Path, want)
			}
			_, _ = io.WriteString(w, test.answer)
		})
		s.config.Pods = onePod{}
		answer := httptest.NewRecorder()
		s.serveSummary(answer, httptest.NewRequest(http.MethodGet, "/stats/summary", nil))
		if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), test.want) {
			t.Errorf("a provider %s: got %d %s, want %s", test.name, answer.Code, answer.Body, test.want)
		}
	}
}
