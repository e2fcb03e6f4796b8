// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/claim"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/endpointslice"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/event"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/secret"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/token"
	"github.com/refract-project/refract/vk/reflection/internal/objects"
)

// Names of the default kinds.
const (
	PodKind           = pod.Name
	ServiceKind       = endpointslice.ServiceKind
	IngressKind       = "Ingress.networking.k8s.io"
	ConfigMapKind     = "ConfigMap"
	SecretKind        = secret.Name
	ClaimKind         = claim.Name
	EndpointSliceKind = endpointslice.Name
	// ServiceAccountKind is the kind that reflects the tokens of this node's pods.
	ServiceAccountKind = token.Name
	EventKind          = event.Name
	NetworkPolicyKind  = "NetworkPolicy.networking.k8s.io"
	// DisruptionBudgetKind is the kind that reflects PodDisruptionBudgets.
	DisruptionBudgetKind = "PodDisruptionBudget.policy"
)

// The interfaces between kinds are checked here, because the packages of the kinds do not import each other, and
// engine.Peer does not find a handler whose methods differ from the interface.
var (
	_ pod.AccountTokens   = (*secret.Handler)(nil)
	_ pod.ArrivingError   = (*secret.MissingTokenError)(nil)
	_ pod.RequestedTokens = (*token.Handler)(nil)
	_ secret.Waiters      = (*pod.Handler)(nil)
	_ token.Shadows       = (*pod.Handler)(nil)
	_ claim.Waiters       = (*pod.Handler)(nil)
	_ pod.Claims          = (*claim.Handler)(nil)
)

// DefaultKinds returns the kinds that are reflected by default.
func DefaultKinds() []Kind {
	return []Kind{
		pod.Kind(),
		{
			Name: ServiceKind, Source: corev1.SchemeGroupVersion.WithResource("services"), Policy: DenyList, Workers: 3, Tracked: true,
			Copy: copies.Spec{Annotations: homeClusterIPs, DropAnnotations: []string{wire.HomeClusterIPsAnnotation}},
			Status: objects.Status{Back: true, Subresource: true, Fields: []string{"loadBalancer"},
				Class: [][]string{{"spec", "type"}, {"spec", "loadBalancerClass"}}}, Shown: serviceStatus,
			Never: func(o *unstructured.Unstructured) bool {
				return endpointslice.IsAPIServer(o.GetNamespace(), o.GetName())
			},
		},
		{
			Name: IngressKind, LiqoName: "Ingress", Source: networkingv1.SchemeGroupVersion.WithResource("ingresses"), Policy: DenyList, Workers: 3,
			Status: objects.Status{Back: true, Subresource: true, Fields: []string{"loadBalancer"},
				Class: [][]string{{"spec", "ingressClassName"}, {"metadata", "annotations", "kubernetes.io/ingress.class"}}}, Shown: balancerStatus,
		},
		{
			Name: ConfigMapKind, Source: corev1.SchemeGroupVersion.WithResource("configmaps"), Policy: DenyList, Workers: 3, Tracked: true,
			// The copy of the ConfigMap with the root CA is renamed, because the provider has its own ConfigMap of
			// this name. It is reflected regardless of the policy, because offloaded pods need it.
			Copy: copies.Spec{Rename: renameRootCA}, Cache: engine.Cache{Copies: content.KeepNothing}, Unless: func(name string) bool { return name == wire.RootCAConfigMap },
		},
		secret.Kind(),
		token.Kind(),
		claim.Kind(),
		endpointslice.Kind(),
		event.Kind(),
		{
			Name: NetworkPolicyKind, LiqoName: "NetworkPolicy", Source: networkingv1.SchemeGroupVersion.WithResource("networkpolicies"), Policy: DenyList, Workers: 3,
			Copy:    copies.Spec{Lesser: withFewerRules, LesserEffect: ", so that the pods there get and send less than the rules allow"},
			Follows: engine.Follows{Namespaces: true}, Unprotected: "its pods there are not isolated",
		},
		{
			Name: DisruptionBudgetKind, LiqoName: "PodDisruptionBudget", Source: policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), Policy: DenyList, Workers: 3,
			Unprotected: "evictions of its pods there are not limited",
		},
	}
}

func renameRootCA(localClusterID string) map[string]string {
	return map[string]string{wire.RootCAConfigMap: wire.RemoteRootCAConfigMap(localClusterID)}
}
