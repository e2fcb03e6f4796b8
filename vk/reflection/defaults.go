// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/claim"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/endpointslice"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/event"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/secret"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/token"
)

// The names of the default kinds.
const (
	PodKind           = pod.Name
	ServiceKind       = endpointslice.ServiceKind
	IngressKind       = "Ingress.networking.k8s.io"
	ConfigMapKind     = "ConfigMap"
	SecretKind        = secret.Name
	ClaimKind         = claim.Name
	EndpointSliceKind = endpointslice.Name
	// ServiceAccountKind is the tokens of the pods of this node.
	ServiceAccountKind = token.Name
	EventKind          = event.Name
)

// The interfaces between kinds are checked here, because they do not know each other: engine.Peer finds no handler whose methods differ.
var (
	_ pod.AccountTokens   = (*secret.Handler)(nil)
	_ pod.ArrivingError   = (*secret.MissingTokenError)(nil)
	_ pod.RequestedTokens = (*token.Handler)(nil)
	_ secret.Waiters      = (*pod.Handler)(nil)
	_ token.Shadows       = (*pod.Handler)(nil)
)

// DefaultKinds returns the kinds that are reflected by default.
func DefaultKinds() []Kind {
	return []Kind{
		pod.Kind(),
		{
			Name: ServiceKind, Source: corev1.SchemeGroupVersion.WithResource("services"), Policy: DenyList, Workers: 3,
			Status: engine.Status{Back: true, Subresource: true, Fields: []string{"loadBalancer"}, Shown: throughBalancer},
			Never: func(o *unstructured.Unstructured) bool {
				return endpointslice.IsAPIServer(o.GetNamespace(), o.GetName())
			},
		},
		{
			Name: IngressKind, LiqoName: "Ingress", Source: networkingv1.SchemeGroupVersion.WithResource("ingresses"), Policy: DenyList, Workers: 3,
			Status: engine.Status{Back: true, Subresource: true, Fields: []string{"loadBalancer"}},
		},
		{
			Name: ConfigMapKind, Source: corev1.SchemeGroupVersion.WithResource("configmaps"), Policy: DenyList, Workers: 3,
			// The provider has its own of that name, and offloaded pods need ours whatever the policy.
			Copy: engine.Copy{Rename: renameRootCA}, Cache: engine.Cache{Copies: engine.KeepNothing}, Unless: func(name string) bool { return name == wire.RootCAConfigMap },
		},
		secret.Kind(),
		token.Kind(),
		claim.Kind(),
		endpointslice.Kind(),
		event.Kind(),
	}
}

func renameRootCA(localClusterID string) map[string]string {
	return map[string]string{wire.RootCAConfigMap: wire.RemoteRootCAConfigMap(localClusterID)}
}

// throughBalancer returns the status of a Service with load-balancer addresses that traffic really goes to. In the default
// mode, VIP, kube-proxy delivers here whatever is sent to such an address: a provider that names an address which is not its
// own would receive the traffic of every pod to it. (Kubernetes: ipMode of load balancers; the class of CVE-2020-8554.)
func throughBalancer(status map[string]any) map[string]any {
	balancer, _ := status["loadBalancer"].(map[string]any)
	entries, _ := balancer["ingress"].([]any)
	if len(entries) == 0 {
		return status
	}
	through := make([]any, len(entries))
	for i, item := range entries {
		through[i] = item
		entry, _ := item.(map[string]any)
		if ip, _ := entry["ip"].(string); ip != "" {
			entry = maps.Clone(entry)
			entry["ipMode"] = string(corev1.LoadBalancerIPModeProxy)
			through[i] = entry
		}
	}
	balancer, status = maps.Clone(balancer), maps.Clone(status)
	balancer["ingress"], status["loadBalancer"] = through, balancer
	return status
}
