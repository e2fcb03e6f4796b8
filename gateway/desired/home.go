// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway/netstate"
	"github.com/refract-project/refract/internal/homeaddress"
)

// Home contains the translations of a node for the pods of consumers: from the addresses that Services have in the cluster of
// their consumer to endpoints in this cluster.
type Home struct {
	Pods  []HomePod
	Ports []HomePort
}

// HomePod is a pod of a consumer on this node.
type HomePod struct {
	Consumer string // cluster ID
	Address  netip.Addr
}

// HomePort is a port of a Service of a consumer.
type HomePort struct {
	Consumer string // cluster ID
	// Address is the cluster IP in the cluster of the consumer.
	Address   netip.Addr
	Protocol  uint8
	Port      uint16
	Sticky    bool
	Endpoints []netip.AddrPort
}

// HomeObjects contains the objects of this cluster that a Home is made of.
type HomeObjects struct {
	// Node is the name of this node.
	Node string
	// Consumers are the cluster IDs of the consumers whose addresses are translated.
	Consumers  []string
	Namespaces []corev1.Namespace
	Pods       []corev1.Pod
	Services   []corev1.Service
	Slices     []discoveryv1.EndpointSlice
}

var homeProtocols = map[corev1.Protocol]uint8{
	corev1.ProtocolTCP: netstate.TCP, corev1.ProtocolUDP: netstate.UDP, corev1.ProtocolSCTP: netstate.SCTP,
}

// Compile returns the translation. The consumer of a pod and of a Service is the one to which the provider has given the
// namespace. What consumers write is not trusted for it.
func (o HomeObjects) Compile() *Home {
	home := &Home{}
	consumers := o.findConsumers()
	for i := range o.Pods {
		pod := &o.Pods[i]
		consumer, ok := consumers[pod.Namespace]
		if address, running := homeaddress.OfPod(pod); ok && running {
			home.Pods = append(home.Pods, HomePod{consumer, address})
		}
	}
	slices.SortFunc(home.Pods, func(a, b HomePod) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Consumer, b.Consumer))
	})
	home.Pods = dropAmbiguous(slices.Compact(home.Pods))
	type serviceKey struct{ namespace, name string }
	byService := map[serviceKey][]*discoveryv1.EndpointSlice{}
	for i := range o.Slices {
		s := &o.Slices[i]
		key := serviceKey{s.Namespace, s.Labels[discoveryv1.LabelServiceName]}
		byService[key] = append(byService[key], s)
	}
	// While the consumer replaces a Service, two copies may have the same address. The newer one is right.
	newest := func(a, b *corev1.Service) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	}
	ordered := make([]*corev1.Service, 0, len(o.Services))
	for i := range o.Services {
		ordered = append(ordered, &o.Services[i])
	}
	slices.SortFunc(ordered, newest)
	used := map[netstate.ServicePort]bool{}
	for _, s := range ordered {
		consumer, ok := consumers[s.Namespace]
		if !ok {
			continue
		}
		for _, port := range o.translateService(consumer, s, byService[serviceKey{s.Namespace, s.Name}]) {
			if key := port.key(); !used[key] {
				used[key] = true
				home.Ports = append(home.Ports, port)
			}
		}
	}
	slices.SortFunc(home.Ports, func(a, b HomePort) int {
		return cmp.Or(cmp.Compare(a.Consumer, b.Consumer), a.Address.Compare(b.Address), cmp.Compare(a.Protocol, b.Protocol),
			cmp.Compare(a.Port, b.Port))
	})
	return home
}

// findConsumers returns the consumers by their namespaces. Tenant namespaces, in which the provider runs pods of its own,
// are not included.
func (o HomeObjects) findConsumers() map[string]string {
	consumers := map[string]string{}
	for i := range o.Namespaces {
		n := &o.Namespaces[i]
		consumer := n.Labels[wire.RemoteClusterIDLabel]
		if n.Annotations[wire.ManagedByNamespaceMapAnnotation] != "" && slices.Contains(o.Consumers, consumer) {
			consumers[n.Name] = consumer
		}
	}
	return consumers
}

// dropAmbiguous returns the pods without those whose address several consumers have. This may happen for a moment while an
// address gets another pod. The pods must be sorted by address.
func dropAmbiguous(pods []HomePod) (kept []HomePod) {
	for i, p := range pods {
		isBefore := i > 0 && pods[i-1].Address == p.Address
		isAfter := i+1 < len(pods) && pods[i+1].Address == p.Address
		if !isBefore && !isAfter {
			kept = append(kept, p)
		}
	}
	return kept
}

func (o HomeObjects) translateService(consumer string, s *corev1.Service, list []*discoveryv1.EndpointSlice) (ports []HomePort) {
	address, ok := homeaddress.Of(s)
	if !ok {
		return nil
	}
	for _, p := range s.Spec.Ports {
		protocol, known := homeProtocols[cmp.Or(p.Protocol, corev1.ProtocolTCP)]
		if !known {
			continue
		}
		ports = append(ports, HomePort{
			Consumer: consumer, Address: address, Protocol: protocol, Port: uint16(p.Port),
			Sticky:    s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP,
			Endpoints: o.findEndpoints(s, p, list),
		})
	}
	return ports
}

// findEndpoints returns the endpoints of a port that kube-proxy would use on this node: those that are ready, or otherwise
// those that still serve while they terminate.
func (o HomeObjects) findEndpoints(s *corev1.Service, port corev1.ServicePort, list []*discoveryv1.EndpointSlice) []netip.AddrPort {
	var ready, serving []netip.AddrPort
	isLocal := s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	for _, slice := range list {
		number, ok := findPort(slice, port)
		if !ok || slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		for _, e := range slice.Endpoints {
			if isLocal && (e.NodeName == nil || *e.NodeName != o.Node) || len(e.Addresses) == 0 {
				continue
			}
			// All addresses of an endpoint are the same endpoint. kube-proxy, too, uses the first.
			address, err := netip.ParseAddr(e.Addresses[0])
			if err != nil || !address.Is4() || !address.IsGlobalUnicast() {
				continue
			}
			endpoint := netip.AddrPortFrom(address, number)
			isReady := e.Conditions.Ready == nil || *e.Conditions.Ready
			isServing := e.Conditions.Serving == nil || *e.Conditions.Serving
			isTerminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
			switch {
			case isReady:
				ready = append(ready, endpoint)
			case isServing && isTerminating:
				serving = append(serving, endpoint)
			}
		}
	}
	if len(ready) == 0 {
		ready = serving
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return slices.Compact(ready)
}

// findPort returns the number of the port in a slice, which may differ between slices if the Service names a port of its pods.
func findPort(slice *discoveryv1.EndpointSlice, port corev1.ServicePort) (uint16, bool) {
	for _, p := range slice.Ports {
		name, protocol := "", corev1.ProtocolTCP
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if name == port.Name && protocol == cmp.Or(port.Protocol, corev1.ProtocolTCP) && p.Port != nil && *p.Port > 0 {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

func (p HomePort) key() netstate.ServicePort {
	return netstate.ServicePort{Owner: p.Consumer, Address: p.Address, Protocol: p.Protocol, Port: p.Port}
}

// services returns the translation in the form of package netstate. It returns nil if no consumer's addresses are translated.
// An address of a node is not translated for anybody, because other processes use it, too.
func (h Host) services() *netstate.Services {
	if h.Home == nil {
		return nil
	}
	s := &netstate.Services{Pods: map[netip.Addr]string{}, Ports: map[netstate.ServicePort]netstate.Backends{}}
	for _, p := range h.Home.Pods {
		if !slices.Contains(h.Nodes, p.Address) {
			s.Pods[p.Address] = p.Consumer
		}
	}
	for _, p := range h.Home.Ports {
		s.Ports[p.key()] = netstate.Backends{Endpoints: p.Endpoints, Sticky: p.Sticky}
	}
	return s
}
