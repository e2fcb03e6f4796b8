// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/folderplugins"
	"github.com/refract-project/refract/internal/pinger"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/vk/node"
)

const (
	tenant = "liqo-tenant-milan"
	name   = "milan"
)

// suite contains a consumer and a provider. The controller has the permissions of the chart's roles.
type suite struct {
	*testing.T
	consumer, provider *testenv.Cluster
	admin              client.Client
	local, remote      *rest.Config
	warnings           *warnings
	version            *atomic.Pointer[string] // version that the provider reports; nil if it reports none
	// folder contains the plugins in the folder. It is nil if there is no folder.
	folder *atomic.Pointer[[]folderplugins.Plugin]
}

// warnings are the messages that the controller has passed to Config.Warn.
type warnings struct {
	mu   sync.Mutex
	list []string
}

func (w *warnings) add(reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, reason+": "+message)
}

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list)
}

func newSuite(t *testing.T) *suite {
	clusters := testenv.ForTest(t,
		testenv.Options{Name: "consumer", NoScheduler: true, AuditLog: true, CRDPaths: []string{"../../api/crds"}},
		testenv.Options{Name: "provider", NoScheduler: true})
	s := &suite{T: t, consumer: clusters[0], provider: clusters[1], warnings: &warnings{}, version: &atomic.Pointer[string]{},
		folder: &atomic.Pointer[[]folderplugins.Plugin]{}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admissionv1.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme, corev1beta1.AddToScheme, offloadingv1beta1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	var err error
	s.admin, err = client.New(s.consumer.Config(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	require.NoError(t, s.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}))
	admin, err := kubernetes.NewForConfig(s.consumer.Config())
	require.NoError(t, err)
	require.NoError(t, rbac.Install(t.Context(), admin, rbac.Kubelet{NodeName: name, TenantNamespace: tenant, KubeconfigSecret: "kubeconfig", Subject: rbac.User("vk")}.Objects()...))
	s.local, err = s.consumer.ConfigFor("vk")
	require.NoError(t, err)
	s.local.UserAgent = wire.VirtualKubeletProcess + "/test"
	s.remote, err = s.provider.ConfigFor("consumer")
	require.NoError(t, err)
	return s
}

// in returns a copy of the suite for a subtest, which starts without a Node and a VirtualNode.
func (s *suite) in(t *testing.T) *suite {
	t.Helper()
	sub := *s
	sub.T, sub.warnings, sub.version, sub.folder = t, &warnings{}, &atomic.Pointer[string]{}, &atomic.Pointer[[]folderplugins.Plugin]{}
	for _, object := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: tenant}},
	} {
		require.NoError(t, client.IgnoreNotFound(sub.admin.Delete(t.Context(), object)))
	}
	return &sub
}

// kubelet runs the pinger and the controller until the returned function is called.
func (s *suite) kubelet() (*node.Controller, func()) {
	s.Helper()
	return s.kubeletFarAway(0)
}

// kubeletFarAway does the same as the method kubelet, but the provider responds with the given latency.
func (s *suite) kubeletFarAway(latency time.Duration) (*node.Controller, func()) {
	s.Helper()
	transport, err := rest.TransportFor(s.remote)
	require.NoError(s, err)
	server, err := url.Parse(s.remote.Host)
	require.NoError(s, err)
	livez := pinger.Livez(server, transport)
	provider := pinger.New(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-time.After(latency):
		}
		return livez(ctx)
	}, 500*time.Millisecond, time.Second, clock.RealClock{})
	controller, err := node.NewController(node.Config{
		Identity:  node.Identity{Name: name, RemoteClusterID: "milan", Address: "127.0.0.1", Port: 10250, KubeletVersion: "v1.36.3"},
		Local:     s.local,
		Namespace: tenant, VirtualNode: name, CheckNetwork: true,
		LeaseDuration: 4 * time.Second,
		Pinger:        provider, Clock: clock.RealClock{}, Warn: s.warnings.add,
		FolderPlugins: func() []folderplugins.Plugin {
			if found := s.folder.Load(); found != nil {
				return *found
			}
			return nil
		},
		ProviderVersion: func(context.Context) (string, error) {
			if version := s.version.Load(); version != nil {
				return *version, nil
			}
			return "", errors.New("it is away")
		},
	})
	require.NoError(s, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go provider.Run(ctx)
	go func() { done <- controller.Run(ctx) }()
	ended := false
	end := func() {
		if ended {
			return
		}
		ended = true
		stop()
		select {
		case err := <-done:
			assert.NoError(s, err, "ending the controller")
		case <-time.After(3 * time.Minute):
			s.Error("the controller does not end")
		}
	}
	s.Cleanup(end)
	return controller, end
}

// expect waits until the function holds returns an empty text, and returns how long this has taken. If the wait times
// out, the test fails with the last text.
func (s *suite) expect(what string, holds func(context.Context) string) time.Duration {
	s.Helper()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Minute)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		problem := holds(ctx)
		if problem == "" {
			return time.Since(begin)
		}
		select {
		case <-ctx.Done():
			s.Fatalf("%s: %s", what, problem)
		case <-ticker.C:
		}
	}
}

// expectNode waits until the Node exists and the function holds returns an empty text for it.
func (s *suite) expectNode(what string, holds func(*corev1.Node) string) time.Duration {
	s.Helper()
	return s.expect(what, func(ctx context.Context) string {
		var n corev1.Node
		if err := s.admin.Get(ctx, types.NamespacedName{Name: name}, &n); err != nil {
			return err.Error()
		}
		return holds(&n)
	})
}

// ready returns a check of the condition Ready for expectNode.
func ready(status corev1.ConditionStatus, message string) func(*corev1.Node) string {
	return func(n *corev1.Node) string {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == status && strings.Contains(c.Message, message) {
				return ""
			}
		}
		encoded, _ := json.Marshal(n.Status.Conditions)
		return string(encoded)
	}
}

func (s *suite) createVirtualNode() {
	s.Helper()
	require.NoError(s, s.admin.Create(s.Context(), &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: tenant},
		Spec: offloadingv1beta1.VirtualNodeSpec{
			ClusterID:     "milan",
			Labels:        map[string]string{"tier": "gold"},
			Taints:        []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}},
			ResourceQuota: corev1.ResourceQuotaSpec{Hard: list("cpu", "4", "memory", "8Gi", "nvidia.com/gpu", "2")},
		},
	}))
}

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func (s *suite) changeVirtualNode(change func(*offloadingv1beta1.VirtualNode)) {
	s.Helper()
	// Conflicts are retried, because the virtual kubelet may write the status at the same time.
	require.NoError(s, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var vn offloadingv1beta1.VirtualNode
		if err := s.admin.Get(s.Context(), types.NamespacedName{Namespace: tenant, Name: name}, &vn); err != nil {
			return err
		}
		change(&vn)
		return s.admin.Update(s.Context(), &vn)
	}))
}

func hasTaint(n *corev1.Node, key string) bool {
	for _, taint := range n.Spec.Taints {
		if taint.Key == key {
			return true
		}
	}
	return false
}

// expectWarning waits for a warning that contains all of the given words.
func (s *suite) expectWarning(words ...string) {
	s.Helper()
	s.expect("warning", func(context.Context) string {
		for _, warning := range s.warnings.all() {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(warning, word) }) {
				return ""
			}
		}
		return fmt.Sprintf("there are only %q, want one with all of %q", s.warnings.all(), words)
	})
}
