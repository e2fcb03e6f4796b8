// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package coverage determines which NetworkPolicies and PodDisruptionBudgets of an offloaded namespace are not enforced
// by its providers. It reads the objects from the API servers, and runs the default plugin on each NetworkPolicy, as
// virtual kubelets do. It does not change anything.
package coverage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/reflectionpolicy"
)

// Report contains the results for one namespace.
type Report struct {
	// Gaps describes the rules that this cluster enforces but a provider does not, each with its remedy.
	Gaps []string
	// Notes contains general remarks, which apply to every namespace with such objects.
	Notes []string
}

// The possible notes of a Report.
const (
	PolicyNote = "each cluster enforces NetworkPolicies for its own pods, and its pod selectors select only those: traffic between pods on different clusters needs an ipBlock with their addresses"
	BudgetNote = "each cluster counts its own pods for PodDisruptionBudgets: as many pods as one allows may be evicted on each cluster at the same time"
)

// Of examines one namespace. The report is empty if the namespace is not offloaded.
func Of(ctx context.Context, c client.Client, namespace string) (*Report, error) {
	providers, err := providersOf(ctx, c, namespace)
	if err != nil || len(providers) == 0 {
		return &Report{}, err
	}
	policies, budgets := &networkingv1.NetworkPolicyList{}, &policyv1.PodDisruptionBudgetList{}
	if err := c.List(ctx, policies, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing NetworkPolicies in %s, %w", namespace, err)
	}
	if err := c.List(ctx, budgets, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing PodDisruptionBudgets in %s, %w", namespace, err)
	}
	report := &Report{}
	if len(policies.Items) > 0 {
		report.Notes = append(report.Notes, PolicyNote)
	}
	if len(budgets.Items) > 0 {
		report.Notes = append(report.Notes, BudgetNote)
	}
	for _, p := range providers {
		if p.addGap(ctx, report, disruptionBudgets, namespace, len(budgets.Items)) {
			for i := range budgets.Items {
				p.addExclusion(report, disruptionBudgets, &budgets.Items[i])
			}
		}
		if !p.addGap(ctx, report, networkPolicies, namespace, len(policies.Items)) {
			continue
		}
		reflected := slices.DeleteFunc(slices.Clone(policies.Items), func(policy networkingv1.NetworkPolicy) bool {
			return p.addExclusion(report, networkPolicies, &policy)
		})
		gaps, err := p.untranslatedPolicies(ctx, namespace, reflected)
		if err != nil {
			return nil, err
		}
		report.Gaps = append(append(report.Gaps, gaps...), p.openedEgress(ctx, namespace, reflected)...)
	}
	return report, nil
}

// kind is one of the two kinds that this package examines.
type kind struct {
	name, singular, group, resource string
	flag                            string // name of the kind in the flags of a virtual kubelet
	value                           string // value in the provider's chart that permits the kind
	without                         string // consequence if none of the kind's objects is reflected
}

var (
	networkPolicies = kind{"NetworkPolicies", "NetworkPolicy", networkingv1.GroupName, "networkpolicies", "networkpolicy", "tenants.networkPolicies",
		"offloaded pods are not isolated there"}
	disruptionBudgets = kind{"PodDisruptionBudgets", "PodDisruptionBudget", policyv1.GroupName, "poddisruptionbudgets", "poddisruptionbudget", "tenants.podDisruptionBudgets",
		"evictions of offloaded pods are not limited there"}
)

// provider is a provider of the examined namespace.
type provider struct {
	id, tenant string            // cluster ID of the provider, and its tenant namespace in this cluster
	remote     string            // remote namespace on the provider
	namespaces map[string]string // all namespaces that are offloaded to the provider, with their remote namespaces
	nodes      []offloading.VirtualNode
	arguments  []string // flags that all virtual kubelets of the provider have
	client     client.Client
}

// addGap adds a gap to the report if there are objects of the kind but none of them is reflected. It returns whether
// any object is reflected.
func (p *provider) addGap(ctx context.Context, report *Report, k kind, namespace string, count int) (reflected bool) {
	switch {
	case count == 0:
		return false
	case p.switchedOff(k):
		report.Gaps = append(report.Gaps, fmt.Sprintf("cluster %s: the %d %s of namespace %s are not reflected, by --%s-reflection-workers=0 (offloading.reflection.%s.workers): %s", p.id, count, k.name, namespace, k.flag, k.flag, k.without))
		return false
	case p.deniesKind(ctx, k):
		report.Gaps = append(report.Gaps, fmt.Sprintf("cluster %s: it does not let this cluster create the %d %s of namespace %s: %s. Have its administrator upgrade Refract, with the value %s=true", p.id, count, k.name, namespace, k.without, k.value))
		return false
	}
	return true
}

// addExclusion adds a gap to the report if an object is not reflected because of its annotations or its kind's policy.
// It returns whether it has added a gap.
func (p *provider) addExclusion(report *Report, k kind, object client.Object) bool {
	annotations := map[string]any{}
	for key, value := range object.GetAnnotations() {
		annotations[key] = value
	}
	policy := reflectionpolicy.DenyList
	if slices.Contains(p.arguments, "--"+k.flag+"-reflection-type="+string(reflectionpolicy.AllowList)) {
		policy = reflectionpolicy.AllowList
	}
	verdict, err := policy.Decide(annotations)
	if err == nil && verdict.Cross {
		return false
	}
	reason := verdict.Reason
	if err != nil {
		reason = err.Error()
	}
	report.Gaps = append(report.Gaps, fmt.Sprintf("cluster %s: %s %s/%s is not reflected: %s", p.id, k.singular, object.GetNamespace(), object.GetName(), reason))
	return true
}

// switchedOff reports whether reflection of the kind is disabled by the flags of all virtual kubelets of the provider.
func (p *provider) switchedOff(k kind) bool {
	return slices.Contains(p.arguments, "--"+k.flag+"-reflection-workers=0")
}

// providersOf returns the providers that a namespace is offloaded to and which have accepted it.
func providersOf(ctx context.Context, c client.Client, namespace string) (found []*provider, err error) {
	all := &offloading.NamespaceMapList{}
	if err := c.List(ctx, all); err != nil {
		return nil, fmt.Errorf("listing NamespaceMaps, %w", err)
	}
	for i := range all.Items {
		nm := &all.Items[i]
		mapping, ok := nm.Status.CurrentMapping[namespace]
		if nm.Labels[wire.ReplicatedLabel] == "true" || !ok || mapping.Phase != offloading.MappingAccepted {
			continue
		}
		p := &provider{id: cmp.Or(nm.Labels[wire.RemoteClusterIDLabel], nm.Name), tenant: nm.Namespace, remote: mapping.RemoteNamespace, namespaces: map[string]string{}}
		for local, status := range nm.Status.CurrentMapping {
			if status.Phase == offloading.MappingAccepted {
				p.namespaces[local] = status.RemoteNamespace
			}
		}
		if err := p.readKubelets(ctx, c); err != nil {
			return nil, err
		}
		found = append(found, p)
	}
	slices.SortFunc(found, func(a, b *provider) int { return strings.Compare(a.id, b.id) })
	return found, nil
}

// readKubelets reads the provider's virtual nodes and the flags of their virtual kubelets from this cluster, and
// creates the client for the provider.
func (p *provider) readKubelets(ctx context.Context, c client.Client) error {
	nodes, kubelets := &offloading.VirtualNodeList{}, &appsv1.DeploymentList{}
	if err := c.List(ctx, nodes, client.InNamespace(p.tenant)); err != nil {
		return fmt.Errorf("listing VirtualNodes in %s, %w", p.tenant, err)
	}
	p.nodes = nodes.Items
	if err := c.List(ctx, kubelets, client.InNamespace(p.tenant), client.MatchingLabels{wire.ComponentLabel: wire.VirtualKubeletComponent}); client.IgnoreNotFound(err) == nil {
		arguments := map[string]int{}
		for i := range kubelets.Items {
			for _, container := range kubelets.Items[i].Spec.Template.Spec.Containers {
				for _, argument := range container.Args {
					arguments[argument]++
				}
			}
		}
		maps.DeleteFunc(arguments, func(_ string, kubeletsWithIt int) bool { return kubeletsWithIt < len(kubelets.Items) })
		p.arguments = slices.Sorted(maps.Keys(arguments))
	}
	p.client = p.newClient(ctx, c)
	return nil
}
