// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/netlab"
	"github.com/refract-project/refract/test/support/testenv"
)

// TestServicesOfHomeByObjects runs agents according to the objects on a real API server, with only the permissions that they need. The
// pod of the lab runs for the consumer rome, whose Service web has the cluster IP 10.96.0.5 in its own cluster.
func TestServicesOfHomeByObjects(t *testing.T) {
	netlab.Need(t)
	options := testenv.Options{Name: "milan", CRDPaths: []string{"../../api/crds/network"}, NoScheduler: true,
		AuditWritesOf: []string{agentsGroup}}
	s := newSite(t, testenv.ForTest(t, options)[0])
	s.agentArgs = []string{"--home-addresses-of=rome"}
	s.startAgents(t)
	agent := s.nodeAgents[0]
	await(t, func() error { return expect(agent.ready(), true) })
	listen(t, s.gate)
	reachWithin := func(timeout time.Duration) error {
		return s.pod.Do(func() error {
			c, err := net.DialTimeout("tcp4", "10.96.0.5:80", timeout)
			if err == nil {
				_ = c.Close()
			}
			return err
		})
	}
	reach := func() error { return reachWithin(refusalTimeout) }
	awaitReached := func(reached bool) {
		t.Helper()
		await(t, func() error { return expect(reach() == nil, reached) })
	}

	remote := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-rome",
		Labels:      map[string]string{wire.RemoteClusterIDLabel: "rome"},
		Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: "liqo-tenant-rome/rome"}}}
	s.create(t, remote)
	web := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "web",
		Annotations: map[string]string{wire.HomeClusterIPsAnnotation: "10.96.0.5"}},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
	s.create(t, web)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "web",
		Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{gatewayIP}}}}
	s.create(t, slice)
	newPod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: name,
			Labels: map[string]string{wire.ManagedByLabel: wire.ManagedByShadowPod}},
			Spec: corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "web",
				Image: "web"}}}}
	}
	setAddress := func(pod *corev1.Pod, address string) {
		t.Helper()
		before := pod.DeepCopy()
		pod.Status.PodIP, pod.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
		require.NoError(t, s.client.Status().Patch(t.Context(), pod, client.MergeFrom(before)))
	}
	own, elsewhere := newPod("own", "node"), newPod("elsewhere", "gateway-node")
	for _, pod := range []*corev1.Pod{own, elsewhere} {
		// The ServiceAccount of a new namespace may not exist yet.
		await(t, func() error { return s.client.Create(t.Context(), pod.DeepCopy()) })
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	}
	setAddress(elsewhere, "10.1.2.77")
	await(t, func() error { return expect(agent.metric("refract_gateway_home_ports"), 1.0) })
	require.Zero(t, agent.metric("refract_gateway_home_pods"), "pods of other nodes are not translated")
	require.Error(t, reach(), "the pod has no address yet")

	begun := time.Now()
	setAddress(own, podIP)
	for reachWithin(10*time.Millisecond) != nil {
		require.Less(t, time.Since(begun), time.Minute)
	}
	t.Logf("the pod reaches the Service %s after its address was written", time.Since(begun).Round(time.Millisecond))
	require.Equal(t, 1.0, agent.metric("refract_gateway_home_pods"))

	t.Run("restart changes nothing", func(t *testing.T) {
		before := dump(t, s.node)
		agent.restart()
		agent.awaitApplied()
		require.Zero(t, agent.metric(`refract_gateway_writes_total{part="network"}`))
		require.Equal(t, before, dump(t, s.node))
		require.NoError(t, reach())
	})
	t.Run("API server away", func(t *testing.T) {
		agent.cut()
		require.NoError(t, reach())
		agent.connect()
	})
	t.Run("endpoint that is not ready", func(t *testing.T) {
		slice.Endpoints[0].Conditions.Ready = new(false)
		require.NoError(t, s.client.Update(t.Context(), slice))
		await(t, func() error { return expect(errors.Is(reach(), unix.ECONNREFUSED), true) })
	})
	t.Run("endpoint that is ready again", func(t *testing.T) {
		slice.Endpoints[0].Conditions.Ready = nil
		require.NoError(t, s.client.Update(t.Context(), slice))
		awaitReached(true)
	})
	t.Run("Service with another address", func(t *testing.T) {
		web.Annotations[wire.HomeClusterIPsAnnotation] = "10.96.0.6"
		require.NoError(t, s.client.Update(t.Context(), web))
		awaitReached(false)
		web.Annotations[wire.HomeClusterIPsAnnotation] = "10.96.0.5"
		require.NoError(t, s.client.Update(t.Context(), web))
		awaitReached(true)
	})
	t.Run("namespace of another consumer", func(t *testing.T) {
		remote.Labels[wire.RemoteClusterIDLabel] = "paris"
		require.NoError(t, s.client.Update(t.Context(), remote))
		awaitReached(false)
		remote.Labels[wire.RemoteClusterIDLabel] = "rome"
		require.NoError(t, s.client.Update(t.Context(), remote))
		awaitReached(true)
	})
	t.Run("pod that has ended", func(t *testing.T) {
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(own), own))
		before := own.DeepCopy()
		own.Status.Phase = corev1.PodSucceeded
		require.NoError(t, s.client.Status().Patch(t.Context(), own, client.MergeFrom(before)))
		awaitReached(false)
	})
	audit, err := os.ReadFile(s.control.AuditLogPath())
	require.True(t, err == nil || os.IsNotExist(err), err)
	require.Empty(t, string(audit), "an agent writes nothing")
	for _, c := range s.nodeAgents {
		require.NotContains(t, c.log.String(), "forbidden", "%s", c)
	}
}
