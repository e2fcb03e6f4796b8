// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"fmt"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/foreigncluster"
	"github.com/refract-project/refract/internal/admission"
)

// Manager is a running manager with all controllers.
type Manager struct {
	// Writes records the manager's requests, except for reads.
	Writes  *Writes
	metrics *prometheus.Registry
	stop    context.CancelFunc
	ended   chan error
}

// StartManager starts all controllers in the cluster, with the roles in the chart. It returns when their caches are
// filled. The controllers are stopped at the end of the test.
func (c *Cluster) StartManager(t *testing.T, change ...func(*controllers.Options)) *Manager {
	t.Helper()
	m, err := c.TryManager(t, change...)
	require.NoError(t, err, "starting manager")
	return m
}

// TryManager is like StartManager, but returns an error if the manager does not start.
func (c *Cluster) TryManager(t *testing.T, change ...func(*controllers.Options)) (*Manager, error) {
	t.Helper()
	options := controllers.Options{
		ClusterID: core.ClusterID(c.ID), ShadowPodWorkers: 4, ShadowEndpointSliceWorkers: 4, NamespaceWorkers: 4, ForeignClusters: foreigncluster.Options{Workers: 1, PingInterval: time.Second, PingTimeout: time.Second},
		RemoteClusterRole: "liqo-virtual-kubelet-remote", Clock: clock.RealClock{},
	}
	metrics := prometheus.NewRegistry()
	options.Registerer = metrics
	for _, apply := range change {
		apply(&options)
	}
	access, err := c.ConfigFor(ManagerUser)
	require.NoError(t, err)
	writes := &Writes{}
	access.Wrap(writes.wrap)
	m, err := launch(t.Context(), access, options)
	if err != nil {
		return nil, err
	}
	m.Writes, m.metrics = writes, metrics
	t.Cleanup(func() {
		m.Stop(t)
		assert.Empty(t, m.Writes.Denied(), "an admission policy of the chart denies what a controller writes")
	})
	return m, nil
}

func launch(ctx context.Context, access *rest.Config, options controllers.Options) (*Manager, error) {
	managerOptions, err := controllers.ManagerOptions(access)
	if err != nil {
		return nil, err
	}
	several := true
	managerOptions.Controller = config.Controller{SkipNameValidation: &several}
	managerOptions.Metrics = metricsserver.Options{BindAddress: "0"}
	managerOptions.HealthProbeBindAddress = "0"
	mgr, err := manager.New(access, managerOptions)
	if err != nil {
		return nil, err
	}
	// Cleanups may need the manager, so it must outlive the test's context. Stop ends the manager.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	m := &Manager{stop: stop, ended: make(chan error, 1)}
	if err := controllers.Register(ctx, mgr, options); err != nil {
		stop()
		return nil, err
	}
	go func() { m.ended <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		stop()
		return nil, fmt.Errorf("filling caches: %w", <-m.ended)
	}
	return m, nil
}

// Stop stops the manager as SIGTERM would. Further calls have no effect.
func (m *Manager) Stop(t *testing.T) {
	t.Helper()
	if m.ended == nil {
		return
	}
	m.stop()
	if !assert.NoError(t, <-m.ended, "stopping manager") {
		// The stacks show which goroutine has not ended.
		assert.NoError(t, pprof.Lookup("goroutine").WriteTo(t.Output(), 1))
	}
	m.ended = nil
}

// Metric returns the sum of the counters or gauges with this name and these labels. labels contains names and values in
// turn.
func (m *Manager) Metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := m.metrics.Gather()
	require.NoError(t, err, "gathering metrics")
	sum := 0.0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && hasLabels(metric, labels) {
				sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func hasLabels(metric *dto.Metric, labels []string) bool {
	has := map[string]string{}
	for _, label := range metric.GetLabel() {
		has[label.GetName()] = label.GetValue()
	}
	for i := 0; i < len(labels); i += 2 {
		if has[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

// Writes records requests other than reads, including requests for Events. Requests that failed because the object had
// been changed or deleted (404, or 409 except for a creation) are not counted: they write nothing, and their number
// depends on the speed of the machine. Writes is safe for concurrent use.
type Writes struct {
	mu     sync.Mutex
	seen   []*write
	denied []string
}

type write struct {
	// request is the method and the path, separated by a space.
	request string
	// outdated is true if the object had been changed or deleted before the request.
	outdated bool
}

// Denied returns the responses to writes that an admission policy denied. If a test does not call it, a denial fails
// the test.
func (w *Writes) Denied() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	denied := w.denied
	w.denied = nil
	return denied
}

// About returns the writes whose path contains all of the parts, as "METHOD path".
func (w *Writes) About(parts ...string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []string
	for _, seen := range w.seen {
		if !seen.outdated && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(seen.request, part) }) {
			found = append(found, seen.request)
		}
	}
	return found
}

func (w *Writes) wrap(next http.RoundTripper) http.RoundTripper {
	next = admission.Transport(next, w.noteDenial)
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method == http.MethodGet {
			return next.RoundTrip(request)
		}
		current := &write{request: request.Method + " " + request.URL.Path}
		w.mu.Lock()
		w.seen = append(w.seen, current) // recorded before the response is returned, because a test may see the effect immediately
		w.mu.Unlock()
		response, err := next.RoundTrip(request)
		if err == nil && (response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusConflict && request.Method != http.MethodPost) {
			w.mu.Lock()
			current.outdated = true
			w.mu.Unlock()
		}
		return response, err
	})
}

func (w *Writes) noteDenial(request *http.Request, _, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text := fmt.Sprintf("%s %s: %s", request.Method, request.URL.Path, message); !slices.Contains(w.denied, text) {
		w.denied = append(w.denied, text)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
