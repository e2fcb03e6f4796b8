// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/refract-project/refract/api/networking/v1beta1"
)

// findEndpoint returns the endpoint at which the peer reaches a server through its Service. If there is none yet, the
// verdict says what is missing.
func (c *Controller) findEndpoint(ctx context.Context, g gateway, service *corev1.Service) (*api.EndpointStatus, verdict, error) {
	endpoint := &api.EndpointStatus{Port: service.Spec.Ports[0].Port, Protocol: ptr.To(corev1.ProtocolUDP)}
	switch service.Spec.Type {
	case corev1.ServiceTypeClusterIP:
		endpoint.Addresses = slices.Clone(service.Spec.ClusterIPs)
	case corev1.ServiceTypeNodePort:
		endpoint.Port = service.Spec.Ports[0].NodePort
		addresses, why, err := c.findNodeAddresses(ctx, g)
		if err != nil || why.reason != "" {
			return nil, why, err
		}
		endpoint.Addresses = addresses
	case corev1.ServiceTypeLoadBalancer:
		endpoint.Addresses = listIngress(service)
		if len(endpoint.Addresses) == 0 {
			const text = "waiting for an address of Service %s of type LoadBalancer: if this cluster has no load balancers for UDP, " +
				"set spec.endpoint.serviceType to NodePort"
			return nil, verdict{waitingReason, fmt.Sprintf(text, service.Name)}, nil
		}
	}
	return endpoint, verdict{}, nil
}

// findNodeAddresses returns the addresses of the node of the active pod. Every node would forward the packets, but the
// peer may be unable to reach the other nodes.
func (c *Controller) findNodeAddresses(ctx context.Context, g gateway) ([]string, verdict, error) {
	name, err := c.findNode(ctx, g)
	if err != nil {
		return nil, verdict{}, err
	}
	if name == "" {
		const text = "waiting for a pod of Deployment %s, whose node is the address of the gateway"
		return nil, verdict{waitingReason, fmt.Sprintf(text, g.objectName())}, nil
	}
	node := &corev1.Node{}
	err = c.live.Get(ctx, client.ObjectKey{Name: name}, node)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, verdict{}, fmt.Errorf("getting Node %s, %w", name, err)
	}
	addresses := listAddresses(node)
	if len(addresses) == 0 {
		const text = "waiting for an address of Node %s, on which the gateway runs"
		return nil, verdict{waitingReason, fmt.Sprintf(text, name)}, nil
	}
	return addresses, verdict{}, nil
}

// findNode returns the node of the active pod. No pod is active before the gateway has the public key of the peer, and the peer makes
// its key only when it knows the endpoint. Until then, findNode therefore returns the node of any pod, or "" if no pod has a node.
func (c *Controller) findNode(ctx context.Context, g gateway) (string, error) {
	if internal := g.server.Status.InternalEndpoint; internal != nil && internal.Node != nil {
		return *internal.Node, nil
	}
	pods := &corev1.PodList{}
	if err := c.live.List(ctx, pods, client.InNamespace(g.object().GetNamespace()), client.MatchingLabels(g.selector())); err != nil {
		return "", fmt.Errorf("listing the pods of Deployment %s, %w", g.objectName(), err)
	}
	var nodes []string
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	if len(nodes) == 0 {
		return "", nil
	}
	return slices.Min(nodes), nil // the same one in each pass
}

// listAddresses returns the addresses of a node, the internal ones first, as in Liqo.
func listAddresses(node *corev1.Node) (addresses []string) {
	for _, wanted := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, address := range node.Status.Addresses {
			if ip, err := netip.ParseAddr(address.Address); address.Type == wanted && err == nil && ip.Is4() { // like the Service
				addresses = append(addresses, address.Address)
			}
		}
	}
	return addresses
}

// listIngress returns the addresses of a load balancer, and then its names.
func listIngress(service *corev1.Service) (addresses []string) {
	var names []string
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		switch {
		case ingress.IP != "":
			addresses = append(addresses, ingress.IP)
		case ingress.Hostname != "":
			names = append(names, ingress.Hostname)
		}
	}
	return append(addresses, names...)
}
