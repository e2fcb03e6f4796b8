// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// away is longer than client-go's first retries take: afterwards it would try again every half minute.
const away = 12 * time.Second

// The provider goes away while nothing is to be written, and comes back: both is noticed at once, and what changed over
// there meanwhile is shown.
func TestProviderAwayWhileNothingIsWritten(t *testing.T) {
	for name, how := range map[string]struct{ lose, find func(*cable, *testing.T) }{
		"refusing": {func(c *cable, _ *testing.T) { c.unplug() }, (*cable).plug},
		"closing":  {func(c *cable, _ *testing.T) { c.setCut(true) }, func(c *cable, _ *testing.T) { c.setCut(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewRegistry()
			l := newLab(t, func(o *Options) { o.Registerer, o.ProbeEvery = registry, 0 })
			cable := l.throughCable()
			l.chainsForPods()
			l.start()
			l.pod("web")
			l.runRemote("web", running(0))
			l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"))
			l.settled()

			lost := time.Now()
			how.lose(cable, t)
			l.eventually(func() error {
				if reachable := gathered(t, registry)["refract_provider_reachable"]; reachable != 0 {
					return fmt.Errorf("refract_provider_reachable is %v", reachable)
				}
				return nil
			})
			noticed := time.Since(lost)
			l.remoteStatus("web", running(1))
			for time.Since(lost) < away {
				if l.manager.Reachable() {
					t.Fatal("the provider is thought to be back")
				}
				time.Sleep(100 * time.Millisecond)
			}
			how.find(cable, t)
			back := time.Now()
			l.present(l.local, "Pod", l.namespace, "web", restarts(1))
			shown := time.Since(back)
			t.Logf("the loss was noticed after %s, the change was shown %s after the return", noticed.Round(time.Millisecond), shown.Round(time.Millisecond))
			if noticed > 3*time.Second || shown > 3*time.Second {
				t.Error("that is too late")
			}
		})
	}
}

// A namespace that is not extended any more ends its watches: that says nothing about the provider.
func TestEndOfANamespaceIsNoOutage(t *testing.T) {
	t.Parallel()
	var log syncedBuffer
	l := newLab(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 3 {
		l.mapNamespaces(map[string]string{l.namespace: l.twin})
		if l.manager == nil {
			l.start()
		}
		l.settled()
		l.mapNamespaces(nil)
		l.eventually(func() error {
			if l.manager.twin(l.namespace) != nil {
				return errors.New("the namespace is still extended")
			}
			return nil
		})
	}
	l.settled()
	if text := log.String(); strings.Contains(text, "provider is unreachable") {
		t.Error(text)
	}
}

// One admission webhook that is too slow for its Services holds up these, and nothing else.
func TestSlowAdmissionIsNoOutage(t *testing.T) {
	t.Parallel()
	var log syncedBuffer
	l := newLab(t, func(o *Options) {
		o.CallTimeout, o.Log = time.Second, slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &log), nil))
	})
	l.slowAdmission("slow")
	l.start()
	l.local.create(t, l.namespace, service("slow", ""))
	l.event(l.namespace, "Service", "slow", "FailedReflection", "no answer within 1s", "admission webhook")
	l.local.create(t, l.namespace, service("fast", ""))
	l.present(l.remote, "Service", l.twin, "fast")
	if text := log.String(); strings.Contains(text, "provider is unreachable") {
		t.Error("a slow admission webhook shut the gate for everything")
	}
}

// slowAdmission has the provider ask somebody about the Services of the twin who never answers for those of one name.
func (l *lab) slowAdmission(name string) {
	l.Helper()
	ended := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			APIVersion, Kind string
			Request          struct{ UID, Name string }
		}
		body, _ := io.ReadAll(r.Body)
		_ = yaml.Unmarshal(body, &review)
		if review.Request.Name == name {
			select {
			case <-ended:
			case <-r.Context().Done():
			}
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": %q, "allowed": true}}`, review.Request.UID)
	}))
	l.Cleanup(server.Close)
	l.Cleanup(func() { close(ended) })
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	hooks := l.remote.dynamic.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"})
	object := &unstructured.Unstructured{}
	text := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: slow.example.com
  clientConfig: {url: "%[2]s", caBundle: %[3]s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [services]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: 30
  admissionReviewVersions: [v1]`, l.twin, server.URL, base64.StdEncoding.EncodeToString(authority))
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		l.Fatal(err)
	}
	must(hooks.Create(l.Context(), object, metav1.CreateOptions{}))(l.T)
	l.Cleanup(func() { _ = hooks.Delete(context.Background(), l.twin, metav1.DeleteOptions{}) })
	l.eventually(func() error { // the API server hears of it after a while
		trial := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service",
			"metadata": map[string]any{"name": name}, "spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}}}
		soon, cancel := context.WithTimeout(l.Context(), time.Second)
		defer cancel()
		if _, err := l.remote.of("Service", l.twin).Create(soon, trial, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return errors.New("the webhook is not asked yet")
		}
		return nil
	})
}

// syncedBuffer is a log that is read while it is written.
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
