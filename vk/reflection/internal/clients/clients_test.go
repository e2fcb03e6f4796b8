// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/refract-project/refract/test/support/apistub"
	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
)

// lab contains Clients for two stub API servers, which have the same ConfigMap.
type lab struct {
	*Clients
	t              *testing.T
	here, provider *apistub.Server
	clock          *clocktesting.FakeClock
	changes        chan bool
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, here: apistub.New(t, clientgoscheme.Scheme), provider: apistub.New(t, clientgoscheme.Scheme), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), changes: make(chan bool, 10)}
	for _, server := range []*apistub.Server{l.here, l.provider} {
		server.Put(t, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "default", "name": "settings"}}})
	}
	var err error
	l.Clients, err = New(Options{
		Local: l.here.Config(), Remote: l.provider.Config(), RemoteClusterID: "milan", CallTimeout: 5 * time.Second, ProbeEvery: time.Second,
		Changed: func(reachable bool) { l.changes <- reachable }, Clock: l.clock, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return l
}

// getRemote reads the ConfigMap of the provider.
func (l *lab) getRemote() error {
	return l.CallRemote(l.t.Context(), func(ctx context.Context) error {
		_, err := l.Remote.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("default").Get(ctx, "settings", metav1.GetOptions{})
		return err
	})
}

// getLocal reads the ConfigMap of this cluster.
func (l *lab) getLocal() error {
	return l.CallLocal(l.t.Context(), func(ctx context.Context) error {
		_, err := l.Core.ConfigMaps("default").Get(ctx, "settings", metav1.GetOptions{})
		return err
	})
}

// TestAnUnreachableProviderIsNotCalled checks that after a call could not reach the provider, further calls fail
// without a request until a probe succeeds. Calls to this cluster must still be made.
func TestAnUnreachableProviderIsNotCalled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	require.NoError(t, l.getRemote())
	var isDown atomic.Bool
	var requests atomic.Int32
	isDown.Store(true)
	l.provider.OnRequest(func(apistub.Request) *apistub.Failure {
		requests.Add(1)
		if isDown.Load() {
			return apistub.Lost
		}
		return nil
	})
	require.Error(t, l.getRemote())
	require.ErrorIs(t, l.Reachable(), breaker.ErrUnreachable)
	assert.False(t, <-l.changes)
	before := requests.Load()
	require.ErrorIs(t, l.getRemote(), breaker.ErrUnreachable)
	assert.Equal(t, before, requests.Load())
	require.NoError(t, l.getLocal())

	isDown.Store(false)
	l.Start(t.Context())
	require.Eventually(t, func() bool {
		l.clock.Step(time.Second)
		return l.Reachable() == nil
	}, 10*time.Second, time.Millisecond)
	assert.True(t, <-l.changes)
	require.NoError(t, l.getRemote())
}

// TestProbes checks for each response to a probe whether the provider counts as reachable.
func TestProbes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer            *apistub.Failure
		isReached, denied bool
	}{
		"ready": {nil, true, false}, "hidden": {apistub.NotFound, true, false}, "forbidden": {apistub.Forbidden, false, true},
		"starting": {apistub.Unavailable, false, false}, "lost": {apistub.Lost, false, false},
	} {
		l := newLab(t)
		l.provider.OnRequest(func(apistub.Request) *apistub.Failure { return c.answer })
		err := l.probeRemote(t.Context())
		assert.Equal(t, c.isReached, err == nil, "%s: %v", name, err)
		var denied *breaker.DeniedError
		assert.Equal(t, c.denied, errors.As(err, &denied), "%s: %v", name, err)
	}
}

// TestThrottlingNamesTheCluster checks that the error of a throttled call names the cluster whose API server throttled
// it.
func TestThrottlingNamesTheCluster(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	overload := func(apistub.Request) *apistub.Failure { return apistub.Overloaded }
	l.here.OnRequest(overload)
	l.provider.OnRequest(overload)
	for cluster, err := range map[string]error{"cluster milan": l.getRemote(), "this cluster's": l.getLocal()} {
		class, _ := failure.Classify(err)
		assert.Equal(t, failure.Throttled, class)
		assert.ErrorContains(t, err, cluster)
	}
	assert.NoError(t, l.Reachable(), "a cluster that throttles is reachable")
}

// TestTheVersionOfTheProviderIsDescribed checks that DescribeRemoteVersion returns the provider's version, and a
// replacement text if the provider does not respond.
func TestTheVersionOfTheProviderIsDescribed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	assert.Equal(t, "Kubernetes v1.36.0", l.DescribeRemoteVersion(t.Context()))
	l = newLab(t)
	l.provider.OnRequest(func(apistub.Request) *apistub.Failure { return apistub.Lost })
	require.Error(t, l.getRemote())
	assert.Equal(t, "Kubernetes of unknown version", l.DescribeRemoteVersion(t.Context()))
}
