// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// metadataServices are the addresses at which clouds serve the credentials of a node to every client on it: link-local
// addresses, and the addresses of Azure, Alibaba Cloud and, for IPv6, AWS.
var metadataServices = ipmap.Ranges{
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("100.100.100.200/32"),
	netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fd00:ec2::/32"),
}

const (
	partialEgressReason = "EgressPolicyIncomplete"
	foreignEgressReason = "EgressPolicyNameTaken"
)

// ensureEgressPolicies reconciles the NetworkPolicies of a remote namespace with the limits of its consumer. Without
// any policy, the network plugin does not restrict the egress of a consumer's pods. Policies are additive, so the
// default egress must exclude the pods that other policies isolate, no matter whether these policies were written by
// the consumer or an administrator. After such a policy was deleted, these pods remain isolated until the next
// reconciliation.
func (c *Controller) ensureEgressPolicies(ctx context.Context, nm *offloading.NamespaceMap, limits tenantlimits.Limits, namespace string) error {
	actual := &networkingv1.NetworkPolicyList{}
	// The policies are not copied, because they are not modified. Copying all policies in each reconciliation of each
	// namespace would need an amount of memory that consumers control.
	if err := c.client.List(ctx, actual, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the NetworkPolicies of namespace %s, %w", namespace, err)
	}
	desired, err := c.egressPolicies(ctx, nm, limits, namespace, actual.Items)
	if err != nil {
		return err
	}
	var problems []error
	missing := int64(0)
	isolated := true
	for _, policy := range inOrder(desired, actual.Items) {
		// The default egress may exclude pods only if another policy isolates them.
		if !isolated && narrows(policy, actual.Items) {
			continue
		}
		err := c.ensureNetworkPolicy(ctx, policy, actual.Items)
		if isCountExceeded(err) {
			missing++
		}
		isolated = isolated && (err == nil || policy.Name != wire.EgressIsolationPolicy)
		problems = append(problems, err)
	}
	if missing > 0 { // the next attempt creates the missing objects, and then lowers the limit again
		problems = append(problems, c.counts.Raise(ctx, namespace, countedPolicies, missing))
	}
	for i := range actual.Items {
		policy := &actual.Items[i]
		if !isolated || !isEgressPolicy(policy) || slices.ContainsFunc(desired, func(d *networkingv1.NetworkPolicy) bool { return d.Name == policy.Name }) {
			continue
		}
		if err := c.client.Delete(ctx, policy); client.IgnoreNotFound(err) != nil {
			problems = append(problems, fmt.Errorf("deleting NetworkPolicy %s, %w", client.ObjectKeyFromObject(policy), err))
		}
	}
	return errors.Join(problems...)
}

// inOrder returns the desired policies in the order to write them, so that no pod loses its egress in between: first
// the isolation, then policies that select at least the pods of the existing ones, and finally policies that exclude
// pods.
func inOrder(desired []*networkingv1.NetworkPolicy, existing []networkingv1.NetworkPolicy) []*networkingv1.NetworkPolicy {
	ordered := slices.Clone(desired)
	rank := func(policy *networkingv1.NetworkPolicy) int {
		switch {
		case policy.Name == wire.EgressIsolationPolicy:
			return 0
		case narrows(policy, existing):
			return 2
		}
		return 1
	}
	slices.SortStableFunc(ordered, func(a, b *networkingv1.NetworkPolicy) int { return rank(a) - rank(b) })
	return ordered
}

// narrows reports whether the desired policy may exclude pods that the existing policy with the same name selects.
func narrows(desired *networkingv1.NetworkPolicy, existing []networkingv1.NetworkPolicy) bool {
	selector, exists := selectorOf(desired.Name, existing)
	return exists && !equality.Semantic.DeepEqual(selector, noPods) && !equality.Semantic.DeepEqual(selector, desired.Spec.PodSelector)
}

// selectorOf returns the pod selector of the policy with the given name, and whether the policy exists.
func selectorOf(name string, existing []networkingv1.NetworkPolicy) (selector metav1.LabelSelector, exists bool) {
	at := slices.IndexFunc(existing, func(policy networkingv1.NetworkPolicy) bool { return policy.Name == name })
	if at < 0 {
		return selector, false
	}
	return existing[at].Spec.PodSelector, true
}

// forget removes the recorded state of the NetworkPolicies of a namespace.
func (c *Controller) forget(namespace string) {
	c.incomplete.Drop(types.NamespacedName{Name: namespace})
	c.complements.forgetNamespace(namespace)
}

// egressPolicies returns the desired NetworkPolicies of a remote namespace, in addition to the existing ones.
func (c *Controller) egressPolicies(
	ctx context.Context, nm *offloading.NamespaceMap, limits tenantlimits.Limits, namespace string, existing []networkingv1.NetworkPolicy,
) ([]*networkingv1.NetworkPolicy, error) {
	if !limits.Enabled(tenantlimits.EgressPolicy) {
		c.forget(namespace)
		return nil, nil
	}
	denied, err := c.listDeniedRanges(ctx, nm.Labels[wire.OriginIDLabel])
	if err != nil {
		return nil, fmt.Errorf("determining what the pods of consumer %s may reach, %w", nm.Labels[wire.OriginIDLabel], err)
	}
	c.incomplete.Drop(types.NamespacedName{Name: namespace})
	var isolating []*networkingv1.NetworkPolicy
	for i := range existing {
		if !isEgressPolicy(&existing[i]) && slices.Contains(existing[i].Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			isolating = append(isolating, &existing[i])
		}
	}
	names := slices.DeleteFunc(wire.EgressPolicyNames(), func(name string) bool {
		at := slices.IndexFunc(existing, func(policy networkingv1.NetworkPolicy) bool { return policy.Name == name })
		return at >= 0 && !isEgressPolicy(&existing[at])
	})
	if len(names) < len(wire.EgressPolicyNames()) {
		c.incomplete.Set(types.NamespacedName{Name: namespace}, true)
		c.report.Warn(nm, foreignEgressReason, mapAction, fmt.Sprintf(
			"namespace %s has NetworkPolicies of others with names that begin with %s, which are reserved: they are left alone. Rename them", namespace, wire.EgressNetworkPolicy))
	}
	if !slices.Contains(names, wire.EgressIsolationPolicy) {
		return nil, report.Errorf(report.Foreign, "NetworkPolicy %s/%s exists and is not ours: rename it", namespace, wire.EgressIsolationPolicy)
	}
	remaining := c.complements.complementOf(namespace, isolating, len(names)-1)
	if !remaining.complete {
		c.incomplete.Set(types.NamespacedName{Name: namespace}, true)
		c.report.Warn(nm, partialEgressReason, mapAction, remaining.describeProblem(namespace))
	}
	rules := c.egressRules(nm, limits, denied)
	desired := []*networkingv1.NetworkPolicy{newEgressPolicy(nm, namespace, wire.EgressIsolationPolicy, metav1.LabelSelector{}, nil)}
	named := nameSelectors(remaining.selectors, names[1:], existing)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		desired = append(desired, newEgressPolicy(nm, namespace, name, named[name], rules))
	}
	return desired, nil
}

// describeProblem returns the message of the Event about pods without egress.
func (c complement) describeProblem(namespace string) string {
	if c.costly {
		return fmt.Sprintf("the pod selectors of the NetworkPolicies of namespace %s are so many or so large that %s-* selects no pods beside them: pods that none of them selects have no egress. Use fewer policies for egress, or fewer labels and values in them, or add a NetworkPolicy for these pods",
			namespace, wire.EgressNetworkPolicy)
	}
	return fmt.Sprintf("the NetworkPolicies of namespace %s select pods by so many combinations of labels that %s-* cannot select all others: some have no egress. Select by fewer labels, or add a NetworkPolicy for these pods",
		namespace, wire.EgressNetworkPolicy)
}

// nameSelectors assigns the selectors to the names of their policies. A selector keeps its name. A new selector
// preferably gets a name whose policy has selected no pods so far, so that no pod is excluded from one policy before
// another one selects it. The policy with the first name always exists.
func nameSelectors(selectors []metav1.LabelSelector, names []string, existing []networkingv1.NetworkPolicy) map[string]metav1.LabelSelector {
	named := map[string]metav1.LabelSelector{}
	var added []metav1.LabelSelector
	for _, selector := range selectors {
		at := slices.IndexFunc(names, func(name string) bool {
			actual, exists := selectorOf(name, existing)
			return exists && equality.Semantic.DeepEqual(actual, selector)
		})
		if at < 0 {
			added = append(added, selector)
		} else {
			named[names[at]] = selector
		}
	}
	var free, used []string
	for _, name := range names {
		actual, exists := selectorOf(name, existing)
		_, kept := named[name]
		switch {
		case kept:
		case !exists || equality.Semantic.DeepEqual(actual, noPods):
			free = append(free, name)
		default:
			used = append(used, name)
		}
	}
	free = append(free, used...)
	for i, selector := range added {
		named[free[i]] = selector
	}
	if _, has := named[names[0]]; !has {
		named[names[0]] = noPods
	}
	return named
}

// noPods is a selector that selects no pods.
var noPods = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
	{Key: wire.RemoteClusterIDLabel, Operator: metav1.LabelSelectorOpDoesNotExist}, {Key: wire.RemoteClusterIDLabel, Operator: metav1.LabelSelectorOpExists},
}}

// ensureNetworkPolicy creates a NetworkPolicy or updates the existing one.
func (c *Controller) ensureNetworkPolicy(ctx context.Context, desired *networkingv1.NetworkPolicy, existing []networkingv1.NetworkPolicy) error {
	key := client.ObjectKeyFromObject(desired)
	at := slices.IndexFunc(existing, func(policy networkingv1.NetworkPolicy) bool { return policy.Name == desired.Name })
	if at < 0 {
		err := c.client.Create(ctx, desired, client.FieldOwner(fieldManager))
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return fmt.Errorf("creating NetworkPolicy %s, %w", key, err)
		}
		return nil
	}
	actual := &existing[at]
	if equality.Semantic.DeepEqual(actual.Spec, desired.Spec) && actual.Labels[managedByLabel] == managedBy {
		return nil
	}
	changed := actual.DeepCopy()
	changed.Spec = desired.Spec
	metav1.SetMetaDataLabel(&changed.ObjectMeta, managedByLabel, managedBy)
	if err := c.client.Patch(ctx, changed, client.MergeFrom(actual), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("updating NetworkPolicy %s, %w", key, err)
	}
	return nil
}

// listDeniedRanges returns the ranges that the pods of a consumer must not reach by default: those of this cluster, of
// metadata services, and those by which this cluster reaches its other peers. The gateways let the pods of consumers
// pass like all other pods of this cluster, so a consumer could otherwise reach all pods of the other consumers' own
// clusters.
func (c *Controller) listDeniedRanges(ctx context.Context, consumer string) (ipmap.Ranges, error) {
	own, err := c.options.OwnRanges()
	if err != nil {
		return nil, err
	}
	others, err := c.options.RangesOfOthers(ctx, consumer)
	if err != nil {
		return nil, err
	}
	return slices.Concat(own, others, metadataServices).Summarize(), nil
}

// egressRules returns the default egress of a consumer's pods. Ingress is not restricted by default, because the
// consumer decides which clients may reach its pods, and this cluster's ingress controllers and load balancers must
// reach them.
func (c *Controller) egressRules(
	nm *offloading.NamespaceMap, limits tenantlimits.Limits, denied ipmap.Ranges,
) []networkingv1.NetworkPolicyEgressRule {
	consumer := nm.Labels[wire.OriginIDLabel]
	dns := []networkingv1.NetworkPolicyPort{
		{Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To(intstr.FromInt32(53))},
		{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(53))},
	}
	peers := []networkingv1.NetworkPolicyPeer{
		// The tenant namespace is left out, because it also contains pods of this cluster: if the consumer is also a
		// provider, its virtual kubelets run there.
		{NamespaceSelector: &metav1.LabelSelector{
			MatchLabels:      map[string]string{wire.RemoteClusterIDLabel: consumer},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: wire.TenantNamespaceLabel, Operator: metav1.LabelSelectorOpDoesNotExist}},
		}},
	}
	for _, family := range []string{"0.0.0.0/0", "::/0"} {
		if block := allBut(family, denied); block != nil {
			peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: block})
		}
	}
	reachable := append(ipmap.Ranges{}, limits.Ranges(tenantlimits.EgressCIDRs)...)
	reachable = append(reachable, c.options.RangesOf[consumer]...)
	if !limits.IsDefault(tenantlimits.EndpointCIDRs) {
		reachable = append(reachable, limits.Ranges(tenantlimits.EndpointCIDRs)...)
	}
	for _, prefix := range reachable.Summarize() {
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: prefix.String()}})
	}
	return []networkingv1.NetworkPolicyEgressRule{{Ports: dns}, {To: peers}}
}

func newEgressPolicy(nm *offloading.NamespaceMap, namespace, name string, selector metav1.LabelSelector, rules []networkingv1.NetworkPolicyEgressRule) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{managedByLabel: managedBy},
			Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: client.ObjectKeyFromObject(nm).String()},
		},
		Spec: networkingv1.NetworkPolicySpec{PodSelector: *selector.DeepCopy(), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, Egress: rules},
	}
}

// allBut returns an IPBlock with all addresses of an IP family except the denied ranges, which must be summarized. It
// returns nil if the whole family is denied, because an IPBlock cannot except all of its addresses.
func allBut(all string, denied ipmap.Ranges) *networkingv1.IPBlock {
	family := netip.MustParsePrefix(all)
	block := &networkingv1.IPBlock{CIDR: all}
	for _, prefix := range denied {
		if prefix == family {
			return nil
		}
		if prefix.Addr().Is4() == family.Addr().Is4() {
			block.Except = append(block.Except, prefix.String())
		}
	}
	return block
}
