// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

const (
	connectionWrites   = `refract_gateway_connection_writes_total{result="success"}`
	connectionFailures = `refract_gateway_connection_writes_total{result="failure"}`
)

// checkConnections checks the Connections of both clusters while the gateway of milan is killed and restarted.
func checkConnections(t *testing.T, rome, milan *site) {
	for s, end := range map[*site]networking.ConnectionType{rome: networking.ClientConnection, milan: networking.ServerConnection} {
		found := s.awaitConnection(t, networking.Connected)
		require.Equal(t, s.other(), found.Labels[wire.RemoteClusterIDLabel])
		require.Equal(t, end, found.Spec.Type)
		require.Equal(t, "WgGateway"+string(end), found.Spec.GatewayRef.Kind)
		owner := metav1.GetControllerOf(found)
		require.Equal(t, "Gateway"+string(end), owner.Kind)
		require.Equal(t, gatewayName, owner.Name)
		require.Equal(t, found.Spec.GatewayRef.UID, owner.UID)
		require.Regexp(t, `^\d+(ms|μs)$`, found.Status.Latency.Value)
		require.WithinDuration(t, time.Now(), found.Status.Latency.Timestamp.Time, time.Minute)
	}
	before, begun := rome.run.metric(connectionWrites), time.Now()
	stale := milan.awaitConnection(t, networking.Connected)
	rome.run.cut() // the lost connection must be written when the API server is back
	milan.run.kill()
	await(t, func() error { return expect(rome.run.metric(connectionFailures) >= 1, true) })
	rome.run.connect()
	failed := rome.awaitConnection(t, networking.ConnectionFailed)
	require.Equal(t, "N/A", failed.Status.Latency.Value)
	dead := milan.awaitConnection(t, networking.Connected)
	require.Equal(t, stale.Status, dead.Status, "a gateway that is gone refreshes nothing")
	milan.run.start()
	rome.awaitConnection(t, networking.Connected)
	await(t, func() error {
		refreshed := milan.awaitConnection(t, networking.Connected)
		return expect(refreshed.Status.Latency.Timestamp.After(stale.Status.Latency.Timestamp.Time), true)
	})
	refreshes := float64(time.Since(begun)/(10*time.Second)) + 1
	require.LessOrEqual(t, rome.run.metric(connectionWrites)-before, 2+refreshes, "a write for each change, and for each refresh")

	checkStandby(t, rome, milan)
	for _, s := range []*site{rome, milan} {
		for _, c := range s.nodeAgents {
			await(t, func() error { return expect(c.metric("refract_gateway_refused"), 0.0) })
		}
	}
}

// checkStandby checks that the gateway of rome becomes a standby when the nodes send their packets to another pod. It
// must keep its links, routes and rules, but remove the peer from its tunnel and not write the Connection. Then it must
// take over again.
func checkStandby(t *testing.T, rome, milan *site) {
	t.Helper()
	await(t, func() error { return expect(rome.run.metric("refract_gateway_active"), 1.0) })
	before, values := dump(t, rome.gate), rome.recordValues(t)
	stale, tunnelWrites := rome.awaitConnection(t, networking.Connected), rome.run.metric(`refract_gateway_writes_total{part="tunnel"}`)
	rome.setActivePod(t, "10.1.2.99")
	await(t, func() error { return expect(rome.run.metric("refract_gateway_active"), 0.0) })
	require.Equal(t, tunnelWrites+1, rome.run.metric(`refract_gateway_writes_total{part="tunnel"}`), "the peer is removed from the tunnel")
	require.Zero(t, rome.run.metric("refract_gateway_connected"))
	milan.awaitConnection(t, networking.ConnectionFailed)
	require.Equal(t, before, dump(t, rome.gate))
	require.Zero(t, rome.run.metric("refract_gateway_connected"), "a pod on standby has no session")
	// A restart does not change the role, even if the gateway starts as a standby.
	rome.run.restart()
	rome.run.awaitApplied()
	require.Zero(t, rome.run.metric("refract_gateway_active"))
	require.Equal(t, before, dump(t, rome.gate))

	rome.setActivePod(t, gatewayIP)
	await(t, func() error { return expect(rome.run.metric("refract_gateway_connected"), 1.0) })
	milan.awaitConnection(t, networking.Connected)
	await(t, func() error {
		refreshed := rome.awaitConnection(t, networking.Connected)
		return expect(refreshed.Status.Latency.Timestamp.After(stale.Status.Latency.Timestamp.Time), true)
	})
	require.NotContains(t, values(), networking.ConnectionFailed)
	require.Equal(t, before, dump(t, rome.gate))
}

// setActivePod makes the nodes of the cluster send their packets to the pod with this address.
func (s *site) setActivePod(t *testing.T, address networking.IP) {
	t.Helper()
	gatewayClient := &networking.GatewayClient{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: s.tenant, Name: gatewayName}, gatewayClient))
	gatewayClient.Status.InternalEndpoint = &networking.InternalGatewayEndpoint{IP: &address}
	require.NoError(t, s.client.Status().Update(t.Context(), gatewayClient))
}

// awaitConnection waits until the gateway's Connection has the value.
func (s *site) awaitConnection(t *testing.T, value networking.ConnectionValue) *networking.Connection {
	t.Helper()
	found := &networking.Connection{}
	await(t, func() error {
		if err := s.client.Get(context.Background(), client.ObjectKey{Namespace: s.tenant, Name: "gw-" + gatewayName}, found); err != nil {
			return err
		}
		if found.Status.Value != value {
			return fmt.Errorf("the Connection of %s is %q instead of %q", s.name, found.Status.Value, value)
		}
		return nil
	})
	return found
}

// recordValues starts to record the values of the cluster's Connections. The returned function returns the values so
// far.
func (s *site) recordValues(t *testing.T) func() []networking.ConnectionValue {
	t.Helper()
	watch, err := s.client.Watch(t.Context(), &networking.ConnectionList{}, client.InNamespace(s.tenant))
	require.NoError(t, err)
	t.Cleanup(watch.Stop)
	var mutex sync.Mutex
	var values []networking.ConnectionValue
	go func() {
		for event := range watch.ResultChan() {
			if c, ok := event.Object.(*networking.Connection); ok {
				mutex.Lock()
				values = append(values, c.Status.Value)
				mutex.Unlock()
			}
		}
	}()
	return func() []networking.ConnectionValue {
		mutex.Lock()
		defer mutex.Unlock()
		return append([]networking.ConnectionValue(nil), values...)
	}
}
