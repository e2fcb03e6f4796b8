// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/vk/node"
)

func testElection(t *testing.T, cluster *testenv.Cluster) {
	admin, err := kubernetes.NewForConfig(cluster.Config())
	require.NoError(t, err)
	_, err = admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, rbac.Install(t.Context(), admin, rbac.Kubelet{NodeName: name, TenantNamespace: tenant, KubeconfigSecret: "kubeconfig", Subject: rbac.User("vk")}.Objects()...))
	access, err := cluster.ConfigFor("vk")
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(access)
	require.NoError(t, err)
	election := func(identity string) node.Election {
		return node.Election{Client: client, Namespace: tenant, Name: name, Identity: identity,
			Duration: 5 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond}
	}
	holder := func() string {
		lease, err := client.CoordinationV1().Leases(tenant).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	// run competes for the lease. Its lead function waits for the end of the context, and then records the holder of
	// the lease.
	type run struct {
		began, ended chan struct{}
		holder       string // holder of the lease at the end of lead; valid after ended is closed
		result       chan error
		stop         context.CancelFunc
	}
	compete := func(identity string) *run {
		ctx, stop := context.WithCancel(context.Background())
		t.Cleanup(stop)
		r := &run{began: make(chan struct{}), ended: make(chan struct{}), result: make(chan error, 1), stop: stop}
		go func() {
			r.result <- election(identity).Run(ctx, func(leading context.Context) error {
				close(r.began)
				<-leading.Done()
				r.holder = holder() // this replica must still hold the lease while it shuts down
				close(r.ended)
				return nil
			})
		}()
		return r
	}
	await := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(3 * time.Minute):
			t.Fatalf("%s did not happen", what)
		}
	}

	first := compete("first")
	await("the first leads", first.began)
	second := compete("second")
	first.stop()
	await("the first ends", first.ended)
	if first.holder != "first" {
		t.Errorf("while the first shut down, the lease was held by %q", first.holder)
	}
	await("the second leads", second.began)
	assert.NoError(t, <-first.result, "a clean end gives")
	third := compete("third")
	third.stop()
	assert.NoError(t, <-third.result, "standing by and leaving")
	require.NoError(t, cluster.StopAPIServer())
	if err := <-second.result; !errors.Is(err, node.ErrLeadershipLost) {
		t.Errorf("a lost lease gives %v, want %v", err, node.ErrLeadershipLost)
	}
	await("the work ends with the lease", second.ended)
}

// silenced is a transport with which a replica can read and release its lease, but cannot renew it.
type silenced struct {
	http.RoundTripper
	on *atomic.Bool
}

func (s silenced) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.on.Load() && r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if !bytes.Contains(body, []byte(`"holderIdentity":""`)) {
			return nil, errors.New("the API server does not answer")
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return s.RoundTripper.RoundTrip(r)
}

// testSlowEnd checks a leader that loses its lease and takes long to stop. It must not release the lease before it has
// stopped, even if the API server is reachable again by then.
func testSlowEnd(t *testing.T, cluster *testenv.Cluster) {
	const slow = "slow"
	var silent atomic.Bool
	config := cluster.Config()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return silenced{next, &silent} })
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	election := node.Election{Client: client, Namespace: metav1.NamespaceDefault, Name: slow, Identity: slow,
		Duration: 5 * time.Second, RenewDeadline: time.Second, RetryPeriod: 200 * time.Millisecond}
	err = election.Run(t.Context(), func(leading context.Context) error {
		silent.Store(true)
		<-leading.Done()
		// The lease must not be released yet. client-go's elector would release the lease before it ends the context of
		// the leader, and another replica could become the leader too early.
		lease, err := client.CoordinationV1().Leases(metav1.NamespaceDefault).Get(t.Context(), slow, metav1.GetOptions{})
		require.NoError(t, err)
		if *lease.Spec.HolderIdentity != slow {
			t.Errorf("while the work ends, the lease is held by %q", *lease.Spec.HolderIdentity)
		}
		return nil
	})
	if !errors.Is(err, node.ErrLeadershipLost) {
		t.Errorf("got %v", err)
	}
}

// testSupersede checks that a lease is taken at once from a holder that is known to be gone, but not from any other
// holder.
func testSupersede(t *testing.T, cluster *testenv.Cluster) {
	client, err := kubernetes.NewForConfig(cluster.Config())
	require.NoError(t, err)
	leases := client.CoordinationV1().Leases(metav1.NamespaceDefault)
	hour, now := int32(3600), metav1.NewMicroTime(time.Now())
	for _, holder := range []string{"milan_dead", "turin_alive"} {
		_, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(holder, "_", "-")},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &hour, AcquireTime: &now, RenewTime: &now}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	// leads reports whether the lease is acquired within patience.
	leads := func(name string, patience time.Duration) (led bool) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		election := node.Election{Client: client, Namespace: metav1.NamespaceDefault, Name: name, Identity: "milan_next",
			Duration: time.Hour, RenewDeadline: time.Minute, RetryPeriod: 200 * time.Millisecond,
			Gone: func(holder string) bool { return strings.HasPrefix(holder, "milan_") }}
		err := election.Run(ctx, func(context.Context) error { led = true; return nil })
		require.NoError(t, err)
		return led
	}
	assert.True(t, leads("milan-dead", 30*time.Second), "the lease of a holder that is gone was waited for")
	assert.False(t, leads("turin-alive", 2*time.Second), "the lease of another node was taken")
}
