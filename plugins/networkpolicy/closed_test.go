// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/sdk/plugintest"
)

const teamLabel = "team"

// Namespaces that exist in both clusters with their labels, and the remote namespaces of two of them.
var (
	homeNamespaces = map[string]labels.Set{
		"shop": {nameLabel: "shop", teamLabel: "a"}, "payments": {nameLabel: "payments", teamLabel: "b"}, "web": {nameLabel: "web", teamLabel: "a"}, dnsNamespace: {nameLabel: dnsNamespace},
	}
	remoteNamespaces = map[string]string{"shop": "shop-rome", "payments": "pay"}
	thereNamespaces  = map[string]labels.Set{
		"shop-rome": {nameLabel: "shop-rome", "liqo.io/remote-cluster-id": "rome"}, "pay": {nameLabel: "pay", "liqo.io/remote-cluster-id": "rome"},
		"liqo-tenant-rome": {nameLabel: "liqo-tenant-rome", "liqo.io/remote-cluster-id": "rome", "liqo.io/tenant-namespace": "true"},
		"shop-naples":      {nameLabel: "shop-naples", "liqo.io/remote-cluster-id": "naples"},
		"shop":             {nameLabel: "shop", teamLabel: "a"}, "web": {nameLabel: "web"}, dnsNamespace: {nameLabel: dnsNamespace},
	}
	podLabels = []labels.Set{{}, {"app": "web"}, {"app": "db"}, {"app": "db", "tier": "internal"}}
)

// reflected returns the labels on the provider of a pod that has the given labels in this cluster.
func reflected(pod labels.Set) labels.Set {
	kept := labels.Set{}
	for key, value := range pod {
		if key != "tier" {
			kept[key] = value
		}
	}
	return kept
}

func matches(t *testing.T, selector *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	return parsed.Matches(set)
}

// admits reports whether a policy permits traffic between two pods. to contains the labels of the destination pod, and
// own the labels of its namespace. from contains the labels of the source pod, and namespace the labels of its
// namespace. If namespace is nil, no selector matches it.
func admits(t *testing.T, spec *networkingv1.NetworkPolicySpec, own, to labels.Set, namespace, from labels.Set) bool {
	t.Helper()
	if !matches(t, &spec.PodSelector, to) {
		return true // the policy does not isolate the pod
	}
	for _, rule := range spec.Ingress {
		if len(rule.From) == 0 {
			return true
		}
		for _, peer := range rule.From {
			var inNamespace bool
			switch {
			case namespace == nil:
			case peer.NamespaceSelector != nil:
				inNamespace = matches(t, peer.NamespaceSelector, namespace)
			default:
				inNamespace = namespace[nameLabel] == own[nameLabel]
			}
			if inNamespace && (peer.PodSelector == nil || matches(t, peer.PodSelector, from)) {
				return true
			}
		}
	}
	return false
}

// randomSelector returns a selector for one of the keys, with a random operator.
func randomSelector(random *rand.Rand, keys map[string][]string) *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	for key, values := range keys {
		value := values[random.IntN(len(values))]
		switch random.IntN(8) {
		case 0:
			selector.MatchLabels = map[string]string{key: value}
		case 1:
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value, values[0]}})
		case 2:
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{value}})
		case 3:
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists})
		case 4:
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist})
		}
	}
	return selector
}

func randomPolicy(random *rand.Rand) *networkingv1.NetworkPolicySpec {
	pods := map[string][]string{"app": {"web", "db"}, "tier": {"internal"}}
	namespaces := map[string][]string{nameLabel: {"shop", "payments", "web", dnsNamespace}, teamLabel: {"a", "b"}}
	spec := &networkingv1.NetworkPolicySpec{PodSelector: *randomSelector(random, pods), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}}
	for range random.IntN(3) {
		rule := networkingv1.NetworkPolicyIngressRule{}
		for range random.IntN(3) {
			peer := networkingv1.NetworkPolicyPeer{}
			if random.IntN(3) > 0 {
				peer.NamespaceSelector = randomSelector(random, namespaces)
			}
			if peer.NamespaceSelector == nil || random.IntN(2) == 0 {
				peer.PodSelector = randomSelector(random, pods)
			}
			rule.From = append(rule.From, peer)
		}
		spec.Ingress = append(spec.Ingress, rule)
	}
	return spec
}

// TestCopiesAdmitNoMore checks that a copy never permits traffic on the provider that the policy does not permit in
// this cluster.
func TestCopiesAdmitNoMore(t *testing.T) {
	m := plugintest.Open(t, module)
	namespaces := map[string]any{}
	for local, remote := range remoteNamespaces {
		namespaces[local] = remote
	}
	root := map[string]any{"localClusterID": "rome", "remoteClusterID": "milan", "localNamespace": "shop", "remoteNamespace": "shop-rome", "namespaces": namespaces,
		"offloadingPatch": map[string]any{"labelsNotReflected": []any{"tier"}}}
	admitted, denied := 0, 0
	for seed := range uint64(2000) {
		here := randomPolicy(rand.New(rand.NewPCG(seed, 1)))
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&networkingv1.NetworkPolicy{Spec: *here})
		require.NoError(t, err)
		object["apiVersion"], object["kind"] = "networking.k8s.io/v1", "NetworkPolicy"
		out := m.Run(t, plugintest.Case{Hook: host.Outgoing, Object: object, Context: root})
		require.NoError(t, out.Err)
		copied := &networkingv1.NetworkPolicy{}
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(out.Object, copied))
		origin := map[string]*string{}
		for local, remote := range remoteNamespaces {
			origin[remote] = ptr.To(local)
		}
		for _, to := range podLabels {
			for there, namespace := range thereNamespaces {
				for _, from := range podLabels {
					var home labels.Set // labels of the pod's namespace in this cluster; nil if the pod belongs to another client
					has := from
					if local := origin[there]; local != nil {
						home, has = homeNamespaces[*local], reflected(from)
					}
					if !admits(t, &copied.Spec, thereNamespaces["shop-rome"], reflected(to), namespace, has) {
						denied++
						continue
					}
					admitted++
					if !admits(t, here, homeNamespaces["shop"], to, home, from) {
						t.Fatalf("seed %d: a pod %v in namespace %s is admitted to pod %v, and is not here:\n%+v\nbecame\n%+v", seed, from, there, to, here, copied.Spec)
					}
				}
			}
		}
	}
	t.Logf("%d connections were admitted, %d denied", admitted, denied)
	require.Positive(t, admitted)
	require.Positive(t, denied)
}
