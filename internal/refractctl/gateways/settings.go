// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	api "github.com/refract-project/refract/api/networking/v1beta1"
)

// Location is the cluster whose gateway waits for connections.
type Location string

// Locations of the server.
const (
	Consumer Location = "Consumer"
	Provider Location = "Provider"
)

// Settings are the user's settings of the gateways. The zero value of a field means that it is not set.
type Settings struct {
	// Server is the cluster whose gateway waits for connections: the one that the other one can reach.
	Server Location
	// ServiceType is the type of the Service of the server: LoadBalancer, NodePort or ClusterIP.
	ServiceType corev1.ServiceType
	// Port is the UDP port of the Service. NodePort is its node port, by default chosen by Kubernetes.
	Port, NodePort int32
	// LoadBalancerIP is the requested address of the load balancer.
	LoadBalancerIP string
	// ClientAddress and ClientPort are where the client reaches the server, if that is not the address of the Service.
	ClientAddress string
	ClientPort    int32
	// MTU is the MTU of the tunnel in bytes.
	MTU int
}

// Defaults, as in liqoctl.
const (
	defaultPort = 51840
	defaultMTU  = 1340
)

// IsSet reports whether the user has set any of the settings.
func (s Settings) IsSet() bool { return s != Settings{} }

// complete returns the settings, completed with those of the existing gateways, and with defaults. It returns an error if
// the gateways are the other way round, because that cannot be changed while they run.
func (s Settings) complete(l *Link) (Settings, error) {
	server := l.presentServer()
	if server != "" && s.Server != "" && s.Server != server {
		const text = "the gateways exist, and the one of the %s is the server: run refractctl network disconnect first to change this"
		return s, fmt.Errorf(text, strings.ToLower(string(server)))
	}
	s.Server = cmp.Or(s.Server, server, Provider)
	if present := map[Location]*end{Consumer: l.consumer, Provider: l.provider}[s.Server].server; present != nil {
		endpoint := present.Spec.Endpoint
		if s.ServiceType == "" || s.ServiceType == endpoint.ServiceType { // a node port is kept only with its type
			s.NodePort = cmp.Or(s.NodePort, ptr.Deref(endpoint.NodePort, 0))
			s.LoadBalancerIP = cmp.Or(s.LoadBalancerIP, ptr.Deref(endpoint.LoadBalancerIP, ""))
		}
		s.ServiceType, s.Port, s.MTU = cmp.Or(s.ServiceType, endpoint.ServiceType), cmp.Or(s.Port, endpoint.Port), cmp.Or(s.MTU, present.Spec.MTU)
	}
	s.ServiceType, s.Port, s.MTU = cmp.Or(s.ServiceType, corev1.ServiceTypeLoadBalancer), cmp.Or(s.Port, defaultPort), cmp.Or(s.MTU, defaultMTU)
	return s, nil
}

// presentServer returns the cluster whose gateway is the server, or "" if there are no gateways yet.
func (l *Link) presentServer() Location {
	switch {
	case l.consumer.server != nil || l.provider.client != nil:
		return Consumer
	case l.provider.server != nil || l.consumer.client != nil:
		return Provider
	}
	return ""
}

// clientEndpoint returns the endpoint to which the client connects. It is the endpoint of the server, unless the user has set another
// address or port, now or in an earlier run.
func (s Settings) clientEndpoint(server api.EndpointStatus, before *api.GatewayClient) api.EndpointStatus {
	endpoint := *server.DeepCopy()
	endpoint.Protocol = ptr.To(corev1.ProtocolUDP)
	if before != nil && before.Annotations[chosenAddressAnnotation] == "true" && s.ClientAddress == "" {
		endpoint.Addresses = slices.Clone(before.Spec.Endpoint.Addresses)
		endpoint.Port = cmp.Or(s.ClientPort, before.Spec.Endpoint.Port)
		return endpoint
	}
	if s.ClientAddress != "" {
		endpoint.Addresses = []string{s.ClientAddress}
	}
	endpoint.Port = cmp.Or(s.ClientPort, endpoint.Port)
	return endpoint
}
