// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/test/support/testenv/proxy"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// away is the duration of an outage. It is longer than client-go's first retries, after which client-go retries only
// every half minute.
const away = 12 * time.Second

// TestProviderAwayWhileNothingIsWritten checks that an outage of the provider, and its end, are noticed at once even
// if no object must be written, and that the changes that the provider made during the outage are then shown.
func TestProviderAwayWhileNothingIsWritten(t *testing.T) {
	for name, how := range map[string]struct {
		lose, find func(*proxy.Cable, *testing.T)
	}{
		"refusing": {func(c *proxy.Cable, _ *testing.T) { c.Unplug() }, (*proxy.Cable).Plug},
		"closing":  {func(c *proxy.Cable, _ *testing.T) { c.SetCut(true) }, func(c *proxy.Cable, _ *testing.T) { c.SetCut(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewRegistry()
			l := newLab(t, func(o *reflection.Options) { o.Registerer, o.ProbeEvery = registry, 0 })
			cable := l.ThroughCable()
			l.ChainsForPods()
			l.Start()
			l.Pod("web")
			l.RunRemote("web", running(0))
			l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
			l.Settled()

			lost := time.Now()
			how.lose(cable, t)
			l.Eventually(func() error {
				if reachable := gathered(t, registry)["refract_provider_reachable"]; reachable != 0 {
					return fmt.Errorf("refract_provider_reachable is %v", reachable)
				}
				return nil
			})
			noticed := time.Since(lost)
			l.RemoteStatus("web", running(1))
			for time.Since(lost) < away {
				if l.Manager.Reachable() {
					t.Fatal("the provider is thought to be back")
				}
				time.Sleep(100 * time.Millisecond)
			}
			how.find(cable, t)
			back := time.Now()
			l.Present(l.Local, "Pod", l.Namespace, "web", restarts(1))
			shown := time.Since(back)
			t.Logf("the loss was noticed after %s, the change was shown %s after the return", noticed.Round(time.Millisecond), shown.Round(time.Millisecond))
			if noticed > 3*time.Second || shown > 3*time.Second {
				t.Error("that is too late")
			}
		})
	}
}

// TestEndOfANamespaceIsNoOutage checks that the end of the watches of a namespace that is no longer offloaded does
// not count as an outage of the provider.
func TestEndOfANamespaceIsNoOutage(t *testing.T) {
	t.Parallel()
	var log syncedBuffer
	l := newLab(t, func(o *reflection.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 3 {
		l.MapNamespaces(map[string]string{l.Namespace: l.RemoteNS})
		if l.Manager == nil {
			l.Start()
		}
		l.Settled()
		l.MapNamespaces(nil)
		l.Eventually(func() error {
			if l.Manager.Scope(reflection.PodKind, l.Namespace) != nil {
				return errors.New("the namespace is still offloaded")
			}
			return nil
		})
	}
	l.Settled()
	if text := log.String(); strings.Contains(text, "rovider is unreachable") {
		t.Error(text)
	}
}

// TestSlowAdmissionIsNoOutage checks that an admission webhook that takes too long for some Services delays only
// these Services.
func TestSlowAdmissionIsNoOutage(t *testing.T) {
	t.Parallel()
	var log syncedBuffer
	l := newLab(t, func(o *reflection.Options) {
		o.CallTimeout, o.Log = time.Second, slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &log), nil))
	})
	l.slowAdmission("slow")
	l.Start()
	l.Local.Create(t, l.Namespace, service("slow", ""))
	l.Event(l.Namespace, "Service", "slow", "FailedReflection", "no response within 1s", "admission webhook")
	l.Local.Create(t, l.Namespace, service("fast", ""))
	l.Present(l.Remote, "Service", l.RemoteNS, "fast")
	if text := log.String(); strings.Contains(text, "rovider is unreachable") {
		t.Error("a slow admission webhook opened the breaker for everything")
	}
}

// slowAdmission installs a webhook on the provider for the Services of the remote namespace. The webhook does not
// respond for Services with the given name.
func (l *lab) slowAdmission(name string) {
	l.Helper()
	ended := make(chan struct{})
	l.admission("services", "v1", "CREATE", func(ctx context.Context, asked question) string {
		if asked.Name == name {
			select {
			case <-ended:
			case <-ctx.Done():
			}
		}
		return ""
	})
	l.Cleanup(func() { close(ended) })
	l.Eventually(func() error { // The API server reads the webhook configuration after a while.
		trial := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service",
			"metadata": map[string]any{"name": name}, "spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}}}
		soon, cancel := context.WithTimeout(l.Context(), time.Second)
		defer cancel()
		if _, err := l.Remote.Of("Service", l.RemoteNS).Create(soon, trial, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return errors.New("the webhook is not asked yet")
		}
		return nil
	})
}

// question contains the fields of an AdmissionReview that the webhook reads.
type question struct {
	UID, Name         string
	Object, OldObject map[string]any
}

// admission installs a webhook on the provider for objects of the remote namespace. If answer returns a non-empty
// text, the request is denied with this text.
func (l *lab) admission(resource, version, operation string, answer func(context.Context, question) (denial string)) {
	l.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			APIVersion, Kind string
			Request          question
		}
		body, _ := io.ReadAll(r.Body)
		_ = yaml.Unmarshal(body, &review)
		denial := answer(r.Context(), review.Request)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": %q, "allowed": %t, "status": {"code": 403, "message": %q}}}`,
			review.Request.UID, denial == "", denial)
	}))
	l.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	hooks := l.Remote.Dynamic.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"})
	object := &unstructured.Unstructured{}
	text := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: test.example.com
  clientConfig: {url: "%[2]s", caBundle: %[3]s}
  rules: [{apiGroups: ["*"], apiVersions: [%[4]s], operations: [%[5]s], resources: [%[6]s]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 30
  admissionReviewVersions: [v1]`, l.RemoteNS, server.URL, base64.StdEncoding.EncodeToString(authority), version, operation, resource)
	require.NoError(l, yaml.Unmarshal([]byte(text), &object.Object))
	reflectiontest.Must(hooks.Create(l.Context(), object, metav1.CreateOptions{}))(l.T)
	l.Cleanup(func() { _ = hooks.Delete(context.Background(), l.RemoteNS, metav1.DeleteOptions{}) })
}

// TestProviderThatDeniesChanges checks that an ephemeral container or a resize that a provider denies causes an
// Event, and blocks neither the status of the pod nor other changes to the pod at the same time or later. Liqo on a
// provider denies all changes to a ShadowPod except to images, the deadline and tolerations.
func TestProviderThatDeniesChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	l.Pod("web")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web")
	plain := func(object map[string]any) any {
		pod, _, _ := unstructured.NestedMap(object, "spec", "pod")
		delete(pod, "activeDeadlineSeconds")
		delete(pod, "tolerations")
		containers, _ := pod["containers"].([]any)
		for _, item := range containers {
			delete(raw.Map(item), "image")
		}
		return pod
	}
	var asked atomic.Int32
	l.admission("shadowpods", "v1beta1", "UPDATE", func(_ context.Context, q question) string {
		asked.Add(1)
		if !reflect.DeepEqual(plain(q.Object), plain(q.OldObject)) {
			return "the spec of a ShadowPod does not change"
		}
		return ""
	})
	for n := 0; asked.Load() == 0; n++ { // The API server reads the webhook configuration after a while.
		l.Local.PatchYAML(t, "Pod", l.Namespace, "web", fmt.Sprintf(`{metadata: {labels: {turn: "%d"}}}`, n))
		l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/turn", fmt.Sprint(n)))
	}
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{spec: {ephemeralContainers: [{name: debug, image: busybox}]}}`, "ephemeralcontainers")
	l.Event(l.Namespace, "Pod", "web", "Warning", "FailedReflection", "does not change")
	l.RunRemote("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), isReady("True"))
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{metadata: {labels: {turn: later}}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/turn", "later"))
	l.Event(l.Namespace, "Pod", "web", "Warning", "FailedReflection", "does not change", "the rest was applied")
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{spec: {containers: [{name: web, image: "web:2"}]}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", func(o *unstructured.Unstructured) error {
		if text := fmt.Sprint(o.Object["spec"]); !strings.Contains(text, "web:2") || strings.Contains(text, "busybox") {
			return fmt.Errorf("its spec is %s", text)
		}
		return nil
	})
	before := asked.Load()
	l.Settled()
	if n := asked.Load() - before; n > 3 {
		t.Errorf("what is denied was sent %d times more", n)
	}
}

// TestPartsThatWereDeniedAreTriedAgain checks that a part of an update that a webhook has denied is retried, because
// the webhook may allow it later.
func TestPartsThatWereDeniedAreTriedAgain(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	l := newLab(t, func(o *reflection.Options) { o.Clock = clock })
	l.Start()
	l.Pod("web")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web")
	var asked, allowed atomic.Bool
	l.admission("shadowpods", "v1beta1", "UPDATE", func(_ context.Context, q question) string {
		asked.Store(true)
		if strings.Contains(fmt.Sprint(q.Object["spec"]), "busybox") && !allowed.Load() {
			return "no debuggers at night"
		}
		return ""
	})
	for n := 0; !asked.Load(); n++ { // The API server reads the webhook configuration after a while.
		l.Local.PatchYAML(t, "Pod", l.Namespace, "web", fmt.Sprintf(`{metadata: {labels: {turn: "%d"}}}`, n))
		l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/turn", fmt.Sprint(n)))
	}
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{spec: {ephemeralContainers: [{name: debug, image: busybox}]}}`, "ephemeralcontainers")
	l.Event(l.Namespace, "Pod", "web", "Warning", "FailedReflection", "no debuggers at night")
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{metadata: {labels: {turn: later}}}`)
	l.Event(l.Namespace, "Pod", "web", "Warning", "FailedReflection", "no debuggers at night", "the rest was applied")
	allowed.Store(true)
	debugged := func() error {
		if text := fmt.Sprint(l.Remote.Get(t, "ShadowPod", l.RemoteNS, "web").Object["spec"]); !strings.Contains(text, "busybox") {
			return fmt.Errorf("its spec is %s", text)
		}
		return nil
	}
	l.Settled()
	if debugged() == nil {
		t.Error("it was tried again at once")
	}
	clock.Step(queue.FirstPartRetry)
	l.Eventually(debugged)
}

// syncedBuffer is a log buffer that can be read while the log is written.
type syncedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
