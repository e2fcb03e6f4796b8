// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/internal/metrics"
	"github.com/refract-project/refract/internal/eventrecorder"
	"github.com/refract-project/refract/test/support/testenv"
)

var provider = controllertest.Cluster{
	ID:      "provider",
	Options: testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true},
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider)) }

func TestARunningManagerCountsWhatItDoes(t *testing.T) {
	namespace := provider.Extended(t, "consumer")
	m := provider.StartManager(t)
	if n := m.Metric(t, "refract_controller_objects", "controller", "shadowpod"); n != 0 {
		t.Errorf("%v objects before there are any", n)
	}
	provider.Create(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "taken"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "theirs", Image: "registry.example/theirs:1"}}},
	})
	provider.Create(t, shadowPod(namespace, "free"))
	provider.Create(t, shadowPod(namespace, "taken"))

	atLeast(t, m, 2, "refract_controller_objects", "controller", "shadowpod", "kind", "ShadowPod")
	atLeast(t, m, 2, "refract_controller_api_writes_total", "controller", "shadowpod", "kind", "Pod", "verb", "create", "destination", metrics.Local)
	atLeast(t, m, 1, "refract_controller_errors_total", "controller", "shadowpod", "class", "foreign")
	atLeast(t, m, 1, "refract_controller_warnings_total", "controller", "shadowpod", "reason", wire.FailedCreatePodReason)

	provider.Create(t, &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "consumer", Labels: map[string]string{wire.ReplicatedLabel: "true", wire.OriginIDLabel: "consumer"},
	}})
	atLeast(t, m, 1, "refract_controller_objects", "controller", "namespacemap", "kind", "NamespaceMap")
	if n := m.Metric(t, "refract_controller_objects", "controller", "replicator"); n != 0 {
		t.Errorf("%v maps are counted that another cluster sent", n)
	}
}

func atLeast(t *testing.T, m *controllertest.Manager, want float64, name string, labels ...string) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("%s %q to be %v", name, labels, want), func() error {
		if n := m.Metric(t, name, labels...); n < want {
			return fmt.Errorf("it is %v", n)
		}
		return nil
	})
}

func shadowPod(namespace, name string) *unstructured.Unstructured {
	shadow := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"pod": map[string]any{
			"containers": []any{map[string]any{"name": "main", "image": "registry.example/main:1"}},
		}},
	}}
	shadow.SetGroupVersionKind(offloading.GroupVersion.WithKind(offloading.ShadowPodKind))
	shadow.SetNamespace(namespace)
	shadow.SetName(name)
	shadow.SetLabels(map[string]string{wire.OriginLabel: "consumer", wire.DestinationLabel: "provider"})
	return shadow
}

func TestAReplicaThatDoesNotLeadEnforcesNothing(t *testing.T) {
	registry, leads := prometheus.NewRegistry(), make(chan struct{})
	enforced := []metrics.Enforced{{Controller: "test", List: &corev1.NamespaceList{}, Meant: func(obj client.Object) bool { return obj.GetName() == "default" }}}
	require.NoError(t, metrics.RegisterObjects(registry, provider.Client, leads, enforced))
	if got := series(t, registry, "refract_controller_objects"); len(got) > 0 {
		t.Errorf("before it leads: %v", got)
	}
	close(leads)
	if got := series(t, registry, "refract_controller_objects"); got["controller=test kind=Namespace"] != 1 {
		t.Errorf("when it leads: %v", got)
	}
}

// TestEveryKindOfWriteIsCounted checks that all methods of the client count their writes. Otherwise a write that
// bypasses the counter would go unnoticed.
func TestEveryKindOfWriteIsCounted(t *testing.T) {
	namespace := provider.Namespace(t)
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	require.NoError(t, err)
	c := m.Client(provider.Client, "test", metrics.Local)
	object := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	whole := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	provider.Get(t, whole, "", namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	nothing := client.RawPatch("application/merge-patch+json", []byte("{}"))
	applied := client.ForceOwnership
	owner := client.FieldOwner("test")
	ctx := t.Context()
	for _, write := range []struct {
		kind, subresource, verb string
		send                    func() error
	}{
		{"ConfigMap", "", "create", func() error { return c.Create(ctx, object("a")) }},
		{"ConfigMap", "", "update", func() error { return c.Update(ctx, object("a")) }},
		{"ConfigMap", "", "patch", func() error { return c.Patch(ctx, object("a"), nothing) }},
		{"ConfigMap", "", "apply", func() error { return c.Apply(ctx, applycorev1.ConfigMap("b", namespace), owner, applied) }},
		{"ConfigMap", "", "delete", func() error { return c.Delete(ctx, object("a")) }},
		{"ConfigMap", "", "deletecollection", func() error { return c.DeleteAllOf(ctx, object(""), client.InNamespace(namespace)) }},
		{"Namespace", "status", "update", func() error { return c.Status().Update(ctx, whole) }},
		{"Namespace", "status", "patch", func() error { return c.Status().Patch(ctx, whole, nothing) }},
		{"Namespace", "status", "apply", func() error { return c.Status().Apply(ctx, applycorev1.Namespace(namespace), owner, applied) }},
		{"ServiceAccount", "token", "create", func() error {
			return c.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{})
		}},
	} {
		assert.NoErrorf(t, write.send(), "%s of %s/%s", write.verb, write.kind, write.subresource)
		want := fmt.Sprintf("controller=test destination=local kind=%s subresource=%s verb=%s", write.kind, write.subresource, write.verb)
		if got := series(t, registry, "refract_controller_api_writes_total")[want]; got != 1 {
			t.Errorf("%s: counted %v times", want, got)
		}
	}
	if got := len(series(t, registry, "refract_controller_api_writes_total")); got != 10 {
		t.Errorf("%d series, want one of each write and no others", got)
	}
}

func TestInterruptionsAreNoErrorsAndNormalEventsNoWarnings(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	require.NoError(t, err)
	failed := m.Failed("test")
	failed(fmt.Errorf("waiting, %w", context.Canceled))
	failed(fmt.Errorf("waiting, %w", context.DeadlineExceeded))
	recorder := m.Recorder(discard{}, "test")
	recorder.Eventf(nil, nil, corev1.EventTypeNormal, "Good", "Act", "")
	recorder.Eventf(nil, nil, corev1.EventTypeWarning, "Bad", "Act", "")
	sum := 0.0
	for labels, n := range series(t, registry, "refract_controller_errors_total") {
		sum += n
		if n > 0 && labels != "class=unavailable controller=test" {
			t.Errorf("%s: %v", labels, n)
		}
	}
	if sum != 1 {
		t.Errorf("%v errors, want 1", sum)
	}
	if got := series(t, registry, "refract_controller_warnings_total"); len(got) != 1 || got["controller=test reason=Bad"] != 1 {
		t.Errorf("warnings = %v", got)
	}
	if _, err := metrics.New(registry); err == nil {
		t.Error("metrics are registered twice, so that one of them would be lost")
	}
}

// TestNotesOfEventsAreEscaped checks that control characters in notes are escaped and long notes are shortened:
// controllers quote other clusters, and Events are displayed in terminals.
func TestNotesOfEventsAreEscaped(t *testing.T) {
	m, err := metrics.New(prometheus.NewRegistry())
	require.NoError(t, err)
	written := &written{}
	m.Recorder(written, "test").Eventf(nil, nil, corev1.EventTypeWarning, "Bad", "Act", "100%% refused: %s", "x\x1b[2K\u202e"+strings.Repeat("y", 2*eventrecorder.Limit))
	if !strings.HasPrefix(written.note, `100% refused: x\u001b[2K\u202e`) || len(written.note) > eventrecorder.Limit {
		t.Errorf("%d bytes are written: %.50q", len(written.note), written.note)
	}
}

type written struct{ note string }

func (w *written) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	w.note = fmt.Sprintf(note, args...)
}

type discard struct{}

func (discard) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

// series returns the values of a metric by their labels.
func series(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			values[strings.Join(labels, " ")] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return values
}
