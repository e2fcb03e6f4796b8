// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway/netstate"
)

func remoteNamespace(name, consumer string) corev1.Namespace {
	return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.RemoteClusterIDLabel: consumer},
		Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: "liqo-tenant-" + consumer + "/" + consumer}}}
}

func homePod(namespace string, ips ...string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod-" + ips[0]}}
	for _, ip := range ips {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return pod
}

// homeService returns the copy of a Service with a TCP port 80 named http.
func homeService(namespace, name, home string) corev1.Service {
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Annotations: map[string]string{wire.HomeClusterIPsAnnotation: home}},
		Spec: corev1.ServiceSpec{ClusterIP: "10.97.0.1", Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

// homeSlice returns a slice of a Service whose port http is 8080. Each state is the address of an endpoint, followed by its
// conditions: r(eady), s(erving), t(erminating).
func homeSlice(namespace, service string, states ...string) discoveryv1.EndpointSlice {
	slice := discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
	}
	for _, state := range states {
		address, conditions, _ := strings.Cut(state, " ")
		has := func(letter string) *bool { return new(strings.Contains(conditions, letter)) }
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, NodeName: new("a"),
			Conditions: discoveryv1.EndpointConditions{Ready: has("r"), Serving: has("s"), Terminating: has("t")}})
	}
	return slice
}

func newHomeObjects() HomeObjects {
	return HomeObjects{
		Node: "a", Consumers: []string{"rome", "milan"},
		Namespaces: []corev1.Namespace{remoteNamespace("shop-rome", "rome"), remoteNamespace("shop-milan", "milan")},
		Pods:       []corev1.Pod{homePod("shop-rome", "10.1.1.10"), homePod("shop-milan", "fd00::11", "10.1.1.11")},
		Services:   []corev1.Service{homeService("shop-rome", "web", "10.96.0.5"), homeService("shop-milan", "db", "10.96.0.5")},
		Slices: []discoveryv1.EndpointSlice{
			homeSlice("shop-rome", "web", "10.1.1.20 rs", "10.1.2.20 rs"), homeSlice("shop-milan", "db", "10.1.2.30 rs")},
	}
}

// describeHome returns the translation as text.
func describeHome(h *Home) (lines []string) {
	for _, p := range h.Pods {
		lines = append(lines, fmt.Sprintf("%s is of %s", p.Address, p.Consumer))
	}
	for _, p := range h.Ports {
		line := fmt.Sprintf("%s %s:%d/%d %v", p.Consumer, p.Address, p.Port, p.Protocol, p.Endpoints)
		if p.Sticky {
			line += " sticky"
		}
		lines = append(lines, line)
	}
	return lines
}

// TestHome checks which pods and Services of consumers are translated.
func TestHome(t *testing.T) {
	const (
		romePod, milanPod = "10.1.1.10 is of rome", "10.1.1.11 is of milan"
		rome              = "rome 10.96.0.5:80/6 [10.1.1.20:8080 10.1.2.20:8080]"
		milan             = "milan 10.96.0.5:80/6 [10.1.2.30:8080]"
	)
	for name, c := range map[string]struct {
		change func(*HomeObjects)
		want   []string
	}{
		"two consumers with one address": {func(*HomeObjects) {}, []string{romePod, milanPod, milan, rome}},
		"the order of objects does not matter": {func(o *HomeObjects) {
			slices.Reverse(o.Pods)
			slices.Reverse(o.Services)
			slices.Reverse(o.Slices)
			slices.Reverse(o.Slices[1].Endpoints)
		}, []string{romePod, milanPod, milan, rome}},
		"consumer that is not translated": {func(o *HomeObjects) { o.Consumers = []string{"rome"} }, []string{romePod, rome}},
		"namespace of the provider":       {func(o *HomeObjects) { o.Namespaces = o.Namespaces[:1] }, []string{romePod, rome}},
		"tenant namespace, with pods of the provider": {func(o *HomeObjects) { o.Namespaces[1].Annotations = nil }, []string{romePod,
			rome}},
		"pod in the network of the node": {func(o *HomeObjects) { o.Pods[0].Spec.HostNetwork = true }, []string{milanPod,
			milan, rome}},
		"pod that has ended": {func(o *HomeObjects) {
			o.Pods[0].Status.Phase = corev1.PodFailed
			o.Pods[1].Status.Phase = corev1.PodSucceeded
		}, []string{milan, rome}},
		"pod without an address": {func(o *HomeObjects) { o.Pods[0].Status.PodIPs = nil }, []string{milanPod, milan, rome}},
		"address of pods of two consumers": {func(o *HomeObjects) {
			o.Pods = append(o.Pods, homePod("shop-milan", "10.1.1.10"))
		}, []string{milanPod, milan, rome}},
		"address of two pods of one consumer": {func(o *HomeObjects) {
			o.Pods = append(o.Pods, homePod("shop-rome", "10.1.1.10"))
		}, []string{romePod, milanPod, milan, rome}},
		"Service without a cluster IP": {func(o *HomeObjects) { o.Services[0].Spec.ClusterIP = "None" }, []string{romePod, milanPod,
			milan}},
		"address that no Service can have": {func(o *HomeObjects) {
			o.Services[0].Annotations[wire.HomeClusterIPsAnnotation] = "127.0.0.1"
		}, []string{romePod, milanPod, milan}},
		"session affinity": {func(o *HomeObjects) {
			o.Services[1].Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		}, []string{romePod, milanPod, milan + " sticky", rome}},
		"no endpoints": {func(o *HomeObjects) { o.Slices = o.Slices[1:] }, []string{romePod, milanPod, milan, "rome 10.96.0.5:80/6 []"}},
		"endpoints that are not ready": {func(o *HomeObjects) {
			o.Slices[0] = homeSlice("shop-rome", "web", "10.1.1.20 rs", "10.1.1.21 s", "10.1.1.22 st", "10.1.1.23 ")
		}, []string{romePod, milanPod, milan, "rome 10.96.0.5:80/6 [10.1.1.20:8080]"}},
		"endpoints that only terminate": {func(o *HomeObjects) {
			o.Slices[0] = homeSlice("shop-rome", "web", "10.1.1.21 s", "10.1.1.22 st", "10.1.1.23 t")
		}, []string{romePod, milanPod, milan, "rome 10.96.0.5:80/6 [10.1.1.22:8080]"}},
		"endpoints without conditions": {func(o *HomeObjects) {
			o.Slices[0].Endpoints[0].Conditions = discoveryv1.EndpointConditions{}
		}, []string{romePod, milanPod, milan, rome}},
		"endpoints in several slices, with several numbers of the port": {func(o *HomeObjects) {
			second := homeSlice("shop-rome", "web", "10.1.1.20 rs", "10.1.3.20 rs")
			second.Ports[0].Port = new(int32(9090))
			again := homeSlice("shop-rome", "web", "10.1.1.20 rs")
			o.Slices = append(o.Slices, second, again)
		}, []string{romePod, milanPod, milan, "rome 10.96.0.5:80/6 [10.1.1.20:8080 10.1.1.20:9090 10.1.2.20:8080 10.1.3.20:9090]"}},
		"slices of other families and ports": {func(o *HomeObjects) {
			six := homeSlice("shop-rome", "web", "fd00::20 rs")
			six.AddressType = discoveryv1.AddressTypeIPv6
			other := homeSlice("shop-rome", "web", "10.1.3.20 rs")
			other.Ports[0].Name = new("metrics")
			udp := homeSlice("shop-rome", "web", "10.1.3.21 rs")
			udp.Ports[0].Protocol = new(corev1.ProtocolUDP)
			odd := homeSlice("shop-rome", "web", "127.0.0.1 rs", "none rs")
			o.Slices = append(o.Slices, six, other, udp, odd)
		}, []string{romePod, milanPod, milan, rome}},
		"several ports and protocols": {func(o *HomeObjects) {
			o.Services[0].Spec.Ports = append(o.Services[0].Spec.Ports, corev1.ServicePort{Name: "dns", Port: 80,
				Protocol: corev1.ProtocolUDP})
			o.Slices[0].Ports = append(o.Slices[0].Ports, discoveryv1.EndpointPort{Name: new("dns"), Protocol: new(corev1.ProtocolUDP),
				Port: new(int32(5353))})
		}, []string{romePod, milanPod, milan, rome, "rome 10.96.0.5:80/17 [10.1.1.20:5353 10.1.2.20:5353]"}},
		"endpoints of this node only": {func(o *HomeObjects) {
			o.Services[0].Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
			o.Slices[0].Endpoints[0].NodeName = new("b")
		}, []string{romePod, milanPod, milan, "rome 10.96.0.5:80/6 [10.1.2.20:8080]"}},
		"two Services with one address: the newer one": {func(o *HomeObjects) {
			newer := homeService("shop-rome", "new", "10.96.0.5")
			newer.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
			o.Services = append(o.Services, newer)
			o.Slices = append(o.Slices, homeSlice("shop-rome", "new", "10.1.1.40 rs"))
		}, []string{romePod, milanPod, milan, "rome 10.96.0.5:80/6 [10.1.1.40:8080]"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newHomeObjects()
			c.change(&o)
			require.Equal(t, c.want, describeHome(o.Compile()))
		})
	}
}

// TestHomeOfNode checks that a node translates nothing if this is disabled, and never the packets of a node.
func TestHomeOfNode(t *testing.T) {
	h := newHost()
	state, err := compileNode(h)
	require.NoError(t, err)
	require.Nil(t, state.Table.Services)
	h.Home = newHomeObjects().Compile()
	h.Home.Pods = append(h.Home.Pods, HomePod{"rome", h.Nodes[1]})
	state, err = compileNode(h)
	require.NoError(t, err)
	services := state.Table.Services
	require.Equal(t, map[netip.Addr]string{netip.MustParseAddr("10.1.1.10"): "rome", netip.MustParseAddr("10.1.1.11"): "milan"},
		services.Pods)
	port := netstate.ServicePort{Owner: "milan", Address: netip.MustParseAddr("10.96.0.5"), Protocol: netstate.TCP, Port: 80}
	require.Equal(t, netstate.Backends{Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.1.2.30:8080")}}, services.Ports[port])
	require.Len(t, services.Ports, 2)
}
