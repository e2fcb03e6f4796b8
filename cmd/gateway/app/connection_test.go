// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/gateway"
	"github.com/refract-project/refract/gateway/nodeleg"
)

// TestConnectionValues checks the new value of a Connection for each previous value and each state of the link.
func TestConnectionValues(t *testing.T) {
	opened := time.Unix(1000, 0)
	silent, connected, lost := link{opened: opened}, link{opened: opened, connected: true}, link{opened: opened, lost: true}
	cutOff := link{opened: opened, connected: true, cutOff: true}
	for name, c := range map[string]struct {
		link   link
		before networking.ConnectionValue
		after  time.Duration
		want   networking.ConnectionValue
		kept   time.Duration
	}{
		"new":                              {silent, "", 0, networking.Connecting, 0},
		"never answered":                   {silent, networking.Connecting, time.Hour, networking.Connecting, 0},
		"first answer":                     {connected, networking.Connecting, 0, networking.Connected, 0},
		"restarted, not answered yet":      {silent, networking.Connected, time.Second, networking.Connected, 4 * time.Second},
		"restarted, still not answered":    {silent, networking.Connected, restartGrace, networking.ConnectionFailed, 0},
		"restarted while the peer is lost": {silent, networking.ConnectionFailed, time.Second, networking.ConnectionFailed, 4 * time.Second},
		"lost soon after a restart":        {lost, networking.Connected, time.Second, networking.ConnectionFailed, 0},
		"lost before it was written":       {lost, networking.Connecting, time.Hour, networking.ConnectionFailed, 0},
		"no node reaches the gateway":      {cutOff, networking.Connected, time.Second, networking.ConnectionFailed, 0},
		"first answer, but no node":        {cutOff, networking.Connecting, time.Hour, networking.ConnectionFailed, 0},
		"back":                             {connected, networking.ConnectionFailed, time.Hour, networking.Connected, 0},
	} {
		value, kept := c.link.nextValue(c.before, opened.Add(c.after))
		require.Equal(t, c.want, value, name)
		require.Equal(t, c.kept, kept, name)
	}
}

// TestConnectionWithoutNodes checks that a Connection fails while all nodes are missing, in whatever order the reports arrive.
func TestConnectionWithoutNodes(t *testing.T) {
	active := true
	role, answer := gateway.Report{Active: &active}, gateway.Report{Connection: &gateway.Connection{Connected: true}}
	nodes := func(total int, missing ...string) gateway.Report {
		return gateway.Report{Leg: &nodeleg.Reached{Total: total, Missing: missing}}
	}
	for name, c := range map[string]struct {
		reports []gateway.Report
		want    networking.ConnectionValue
	}{
		"some missing":                {[]gateway.Report{role, answer, nodes(2, "a")}, networking.Connected},
		"all missing":                 {[]gateway.Report{role, answer, nodes(2, "a", "b")}, networking.ConnectionFailed},
		"missing before the answer":   {[]gateway.Report{role, nodes(2, "a", "b"), answer}, networking.ConnectionFailed},
		"missing before it is active": {[]gateway.Report{nodes(2, "a", "b"), role, answer}, networking.ConnectionFailed},
		"one is back":                 {[]gateway.Report{role, answer, nodes(2, "a", "b"), nodes(2, "a")}, networking.Connected},
		"the only node":               {[]gateway.Report{role, answer, nodes(1, "a")}, networking.Connected},
		"no nodes":                    {[]gateway.Report{role, answer, nodes(0)}, networking.Connected},
		"active again":                {[]gateway.Report{role, nodes(2, "a", "b"), nodes(0), role, answer}, networking.Connected},
	} {
		k := connectionKeeper{changed: make(chan struct{}, 1)}
		for _, r := range c.reports {
			k.recordReport(r)
		}
		value, _ := k.link.nextValue(networking.Connected, time.Now())
		require.Equal(t, c.want, value, name)
		require.Len(t, k.changed, 1, name)
	}
}

// TestConnectionRefreshes checks when a Connection that stays connected is written again.
func TestConnectionRefreshes(t *testing.T) {
	begun := time.Unix(1000, 0)
	k := connectionKeeper{refreshed: begun, recorded: begun}
	l := link{connected: true, answered: begun}
	value, wait := k.nextWrite(l, networking.Connected, begun.Add(time.Hour))
	require.Equal(t, networking.Connected, value)
	require.Positive(t, wait, "nobody has measured since: the Connection becomes stale")
	l.answered = begun.Add(time.Second)
	_, wait = k.nextWrite(l, networking.Connected, begun.Add(4*time.Second))
	require.Equal(t, 6*time.Second, wait)
	_, wait = k.nextWrite(l, networking.Connected, begun.Add(connectionRefreshInterval))
	require.Zero(t, wait)
	l = link{opened: begun, lost: true}
	value, wait = k.nextWrite(l, networking.Connected, begun.Add(time.Second))
	require.Equal(t, networking.ConnectionFailed, value)
	require.Zero(t, wait)
	_, wait = k.nextWrite(l, networking.ConnectionFailed, begun.Add(time.Hour))
	require.Positive(t, wait, "a lost peer is written once")
}

// TestConnectionOwners checks which Connections a gateway writes. For other Connections, the error must name the owner.
func TestConnectionOwners(t *testing.T) {
	gate := &networking.GatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "milan", UID: "1"}}
	own := newConnection(gate, "gw-milan")
	owned, err := checkOwner(own, gate)
	require.NoError(t, err)
	require.True(t, owned)
	former := own.DeepCopy()
	former.OwnerReferences[0].UID = "0"
	owned, err = checkOwner(former, gate)
	require.NoError(t, err, "Kubernetes deletes it")
	require.False(t, owned)
	other := former.DeepCopy()
	other.OwnerReferences[0].Name = "turin"
	ownerless := own.DeepCopy()
	ownerless.OwnerReferences = nil
	for _, c := range []*networking.Connection{other, ownerless} {
		owned, err = checkOwner(c, gate)
		require.ErrorContains(t, err, "Connection tenant/gw-milan does not belong to this gateway")
		require.False(t, owned)
	}
}

// TestLatencies checks that latencies are written in Liqo's format.
func TestLatencies(t *testing.T) {
	for latency, want := range map[time.Duration]string{
		340*time.Microsecond + 999: "340μs", time.Millisecond: "1ms", 12*time.Millisecond + 900*time.Microsecond: "12ms", 3 * time.Second: "3000ms",
	} {
		status := link{connected: true, latency: latency, answered: time.Unix(1000, 0)}.nextStatus(networking.Connected, time.Unix(1009, 0))
		require.Equal(t, want, status.Latency.Value)
		require.Equal(t, int64(1000), status.Latency.Timestamp.Unix(), "the time of the answer, not of the write")
	}
	status := link{latency: time.Second}.nextStatus(networking.ConnectionFailed, time.Unix(1009, 0))
	require.Equal(t, "N/A", status.Latency.Value)
}
