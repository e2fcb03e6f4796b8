// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/gateway/desired"
)

func newNode(ip string, pods ...string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{PodCIDRs: pods}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "203.0.113.9"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"},
			{Type: corev1.NodeInternalIP, Address: ip}}}}
}

func newIP(name, node, granted string) ipam.IP {
	return ipam.IP{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: name}, Spec: ipam.IPSpec{IP: networking.IP(node)},
		Status: ipam.IPStatus{IP: networking.IP(granted)}}
}

// TestNodes checks that a node with IPv4 and IPv6 addresses is converted, and that it keeps its addresses while its
// objects cannot be used.
func TestNodes(t *testing.T) {
	good, goodIP := newNode("192.168.0.1", "fd00:1::/64", "10.1.1.0/24"), newIP("a", "192.168.0.1", "10.70.0.5")
	for want, c := range map[string]struct {
		node corev1.Node
		ips  []ipam.IP
	}{
		"node a, status.addresses has no InternalIP of IPv4":           {newNode("fd00::2"), []ipam.IP{goodIP}},
		"node a, spec.podCIDRs":                                        {newNode("192.168.0.1", "10.1.1.0"), []ipam.IP{goodIP}},
		"IP liqo/a, status.ip \"fd00::5\" is not an IPv4 address":      {good, []ipam.IP{newIP("a", "192.168.0.1", "fd00::5")}},
		"IP liqo/b is another one for 192.168.0.1: delete one of them": {good, []ipam.IP{goodIP, newIP("b", "192.168.0.1", "10.70.0.6")}},
		// The IP was recreated, and its address has not been granted yet.
		"": {good, []ipam.IP{newIP("a", "192.168.0.1", ""), newIP("b", "192.168.0.2", "10.70.0.6")}},
	} {
		t.Run(want, func(t *testing.T) {
			var n nodes
			before, err := n.translate([]corev1.Node{good}, []ipam.IP{goodIP})
			require.NoError(t, err)
			require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}, before[0].PodRanges)
			require.Equal(t, netip.MustParseAddr("10.70.0.5"), before[0].External)
			for range 2 {
				after, err := n.translate([]corev1.Node{c.node}, c.ips)
				if want != "" {
					require.ErrorContains(t, err, want)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, before, after)
			}
			after, err := n.translate([]corev1.Node{good}, nil)
			require.NoError(t, err)
			require.False(t, after[0].External.IsValid(), "the IP was deleted")
			after, err = n.translate(nil, nil)
			require.NoError(t, err)
			require.Empty(t, after, "the Node was deleted")
		})
	}
}

// TestSources checks that packets of nodes may arrive from all their IPv4 addresses, and from an address that is kept.
func TestSources(t *testing.T) {
	a, b, kept := newNode("192.168.0.9"), newNode("192.168.0.1"), desired.Node{Name: "c", IP: netip.MustParseAddr("192.168.0.3")}
	a.Status.Addresses = append(a.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.9.0.9"},
		corev1.NodeAddress{Type: corev1.NodeHostName, Address: "192.168.0.99"},
		corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "none"})
	require.Equal(t, "[10.9.0.9 192.168.0.1 192.168.0.3 192.168.0.9 203.0.113.9]",
		fmt.Sprint(listSources([]corev1.Node{a, b}, []desired.Node{kept, {IP: netip.MustParseAddr("192.168.0.9")}})))
}

// TestPods checks which addresses of pods get a route of their own: those on a real node that are outside of its pod
// ranges.
func TestPods(t *testing.T) {
	pod := func(node, ip string, hostNetwork bool) corev1.Pod {
		return corev1.Pod{Spec: corev1.PodSpec{NodeName: node, HostNetwork: hostNetwork}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: ip}}}}
	}
	nodes := []desired.Node{
		{Name: "a", IP: netip.MustParseAddr("192.168.0.1"), PodRanges: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}},
		{Name: "b", IP: netip.MustParseAddr("192.168.0.2"), Pods: []netip.Addr{netip.MustParseAddr("10.9.9.9")}},
	}
	dual := pod("b", "fd00::7", false)
	dual.Status.PodIPs = []corev1.PodIP{{IP: "fd00::7"}, {IP: "10.1.5.7"}}
	addPods(nodes, []corev1.Pod{
		pod("a", "10.1.1.5", false), pod("a", "10.1.4.9", false), pod("a", "10.1.4.3", false), pod("a", "192.168.0.1", true), pod("a", "", false),
		pod("b", "10.1.1.6", false), pod("b", "10.1.1.6", false), pod("milan", "10.61.0.4", false), dual,
	})
	require.Equal(t, "[10.1.4.3 10.1.4.9]", fmt.Sprint(nodes[0].Pods))
	require.Equal(t, "[10.1.1.6 10.1.5.7]", fmt.Sprint(nodes[1].Pods))
}

// TestEndpoints checks that the addresses of the peer's gateway are used in turn, and that a failed resolution does not
// change them.
func TestEndpoints(t *testing.T) {
	names := map[string]string{"gateway.example.org": "203.0.113.7"}
	e := endpoints{resolve: func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if names[host] == "" {
			return nil, errors.New("no such host")
		}
		return []netip.Addr{netip.MustParseAddr(names[host])}, nil
	}}
	spec := networking.EndpointStatus{Addresses: []string{"203.0.113.2", "gateway.example.org"}, Port: 51840}
	choose := func(want string) {
		t.Helper()
		found, _ := e.choose(t.Context(), spec)
		require.Equal(t, want, found.String())
	}
	choose("203.0.113.2:51840")
	choose("203.0.113.2:51840")
	e.advance()
	choose("203.0.113.7:51840")
	names["gateway.example.org"] = "203.0.113.8"
	choose("203.0.113.7:51840") // while the peer is connected, names are not resolved again
	e.advance()
	choose("203.0.113.2:51840")
	e.advance()
	choose("203.0.113.8:51840")
	names = nil
	e.advance()
	e.advance()
	choose("203.0.113.8:51840")
	_, err := e.choose(t.Context(), spec)
	require.ErrorContains(t, err, `resolving "gateway.example.org", no such host`)
	spec.Port = 0
	_, err = e.choose(t.Context(), spec)
	require.ErrorContains(t, err, "spec.endpoint.port 0 is not a UDP port")
	spec = networking.EndpointStatus{Port: 51840}
	choose("invalid AddrPort")
}

// TestFlags checks that errors about flags contain the name of the flag.
func TestFlags(t *testing.T) {
	for line, want := range map[string]string{
		"run": "is not set",
		"run --cluster-id=a --namespace=b --name=c":                             `--pod-ip is not set: set it, or --mtu`,
		"run --cluster-id=a --namespace=b --name=c --mtu=1500 --wireguard=fast": `--wireguard is "fast"`,
		"run --cluster-id=a --namespace=b --name=c --mtu=-1":                    "--mtu=-1: use 0 or more",
		"run --cluster-id=a --namespace=b --name=c --mtu=1500 --standby":        `--standby needs the address of this pod: set --pod-ip`,
		"run --cluster-id=a --namespace=b --name=c --pod-ip=fd00::5":            `--pod-ip="fd00::5": the pod has no IPv4 address`,
		"run --cluster-id=a --namespace=b --name=c --pod-ip=fd00::5,x":          `--pod-ip="fd00::5,x": "x" is not an address`,
		"run --x":                            "unknown flag: --x: see gateway run --help",
		"agent":                              "--node-name is not set",
		"agent --node-name=a --log-format=x": `--log-format is "x"`,
		"agent --node-name=a --kubeconfig=/nowhere/config": "--kubeconfig=/nowhere/config cannot be used",
		"serve": `unknown command "serve" for "gateway"`,
	} {
		command := NewCommand(func(string) string { return "" })
		command.SetArgs(strings.Fields(line))
		command.SetErr(&strings.Builder{})
		require.ErrorContains(t, command.ExecuteContext(t.Context()), want, line)
	}
}

// TestPodAddresses checks that the IPv4 address of a pod is used, whatever family the cluster prefers.
func TestPodAddresses(t *testing.T) {
	for given, want := range map[string]string{"10.1.0.1": "10.1.0.1", "10.1.0.1,fd00::5": "10.1.0.1", "fd00::5,10.1.0.1": "10.1.0.1"} {
		o := runOptions{clusterID: "a", namespace: "b", name: "c", podIP: given, standby: true, implementation: "auto"}
		require.NoError(t, o.validate())
		require.Equal(t, want, o.podIP)
	}
}

// TestReversePathFilter checks that a strict filter is reported if a pod of the peer can have the address of the gateway's pod.
func TestReversePathFilter(t *testing.T) {
	peer := &networking.Configuration{}
	peer.Spec.Remote.CIDR.Pod = []networking.CIDR{"", "10.1.0.0/16"}
	inside, outside := netip.MustParseAddr("10.1.2.5"), netip.MustParseAddr("10.2.2.5")
	require.ErrorContains(t, checkReversePathFilter("1", inside, peer), "net.ipv4.conf.all.rp_filter is 1 in the pod of the gateway: "+
		"the kernel drops the packets of the peer's pod with the address 10.1.2.5")
	require.NoError(t, checkReversePathFilter("1", outside, peer))
	require.NoError(t, checkReversePathFilter("1", netip.Addr{}, peer))
	require.NoError(t, checkReversePathFilter("1", inside, nil))
	for _, value := range []string{"0", "2", ""} {
		require.NoError(t, checkReversePathFilter(value, inside, peer))
	}
}

// TestStandby checks which pod of a gateway is active: the pod in status.internalEndpoint, or, if there is no endpoint,
// a pod that was not started as a standby.
func TestStandby(t *testing.T) {
	address := func(ip networking.IP) *networking.InternalGatewayEndpoint {
		return &networking.InternalGatewayEndpoint{IP: &ip}
	}
	for _, c := range []struct {
		name     string
		options  runOptions
		endpoint *networking.InternalGatewayEndpoint
		want     bool
	}{
		{"the only pod", runOptions{podIP: "10.1.0.1"}, nil, false},
		{"no pod is chosen yet", runOptions{podIP: "10.1.0.1", standby: true}, nil, true},
		{"an endpoint without an address", runOptions{podIP: "10.1.0.1", standby: true}, &networking.InternalGatewayEndpoint{}, true},
		{"this pod", runOptions{podIP: "10.1.0.1", standby: true}, address("10.1.0.1"), false},
		{"another pod", runOptions{podIP: "10.1.0.1"}, address("10.1.0.2"), true},
		{"a pod that does not know its address", runOptions{}, address("10.1.0.2"), false},
	} {
		if got := c.options.isStandby(c.endpoint); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestServerAndClientOfOneName checks which of a GatewayServer and a GatewayClient with the name of this gateway it runs for.
func TestServerAndClientOfOneName(t *testing.T) {
	idle, idleClient := &networking.GatewayServer{}, &networking.GatewayClient{}
	running, runningClient := idle.DeepCopy(), idleClient.DeepCopy()
	running.Status.ServerRef, runningClient.Status.ClientRef = &corev1.ObjectReference{}, &corev1.ObjectReference{}
	for _, c := range []struct {
		server, wantServer *networking.GatewayServer
		client, wantClient *networking.GatewayClient
	}{
		{server: running, client: idleClient, wantServer: running},
		{server: idle, client: runningClient, wantClient: runningClient},
		{server: idle, wantServer: idle},
		{client: idleClient, wantClient: idleClient},
		// The objects say nothing, so they are refused.
		{server: idle, client: idleClient, wantServer: idle, wantClient: idleClient},
		{server: running, client: runningClient, wantServer: running, wantClient: runningClient},
	} {
		server, gatewayClient := preferRunningEnd(c.server, c.client)
		require.Same(t, c.wantServer, server)
		require.Same(t, c.wantClient, gatewayClient)
	}
}
