// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// metadataServices are the addresses at which clouds give credentials of a node to whoever asks from it: link-local ones, and those of Azure,
// Alibaba Cloud and, by IPv6, AWS.
var metadataServices = ipmap.Ranges{
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("100.100.100.200/32"),
	netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fd00:ec2::/32"),
}

// ensureEgressPolicy brings the NetworkPolicy of a remote namespace in line with the limits of its consumer. Without one, the pods of a consumer
// reach whatever the network plugin connects them with.
func (c *Controller) ensureEgressPolicy(ctx context.Context, nm *offloading.NamespaceMap, limits tenantlimits.Limits, namespace string) error {
	key := client.ObjectKey{Namespace: namespace, Name: wire.EgressNetworkPolicy}
	actual := &networkingv1.NetworkPolicy{}
	err := c.client.Get(ctx, key, actual)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting NetworkPolicy %s, %w", key, err)
	}
	exists := err == nil
	if !limits.Enabled(tenantlimits.EgressPolicy) {
		if exists {
			err = c.client.Delete(ctx, actual)
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting NetworkPolicy %s, %w", key, err)
		}
		return nil
	}
	own, err := c.options.OwnRanges()
	if err != nil {
		return fmt.Errorf("determining what the pods of consumer %s may reach, %w", nm.Labels[wire.OriginIDLabel], err)
	}
	desired := c.egressPolicy(nm, limits, key, own)
	if !exists {
		err := c.client.Create(ctx, desired, client.FieldOwner(fieldManager))
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return fmt.Errorf("creating NetworkPolicy %s, %w", key, err)
		}
		return nil
	}
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

// egressPolicy returns the NetworkPolicy of a remote namespace. It is about egress alone: who may reach the pods of a consumer is for the consumer to
// say, and ingress controllers and load balancers of this cluster must.
func (c *Controller) egressPolicy(nm *offloading.NamespaceMap, limits tenantlimits.Limits, key client.ObjectKey, own ipmap.Ranges) *networkingv1.NetworkPolicy {
	consumer := nm.Labels[wire.OriginIDLabel]
	dns := []networkingv1.NetworkPolicyPort{
		{Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To(intstr.FromInt32(53))},
		{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(53))},
	}
	peers := []networkingv1.NetworkPolicyPeer{
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{wire.RemoteClusterIDLabel: consumer}}},
		{IPBlock: allBut("0.0.0.0/0", own)},
		{IPBlock: allBut("::/0", own)},
	}
	reachable := append(ipmap.Ranges{}, limits.Ranges(tenantlimits.EgressCIDRs)...)
	reachable = append(reachable, c.options.RangesOf[consumer]...)
	if !limits.IsDefault(tenantlimits.EndpointCIDRs) {
		reachable = append(reachable, limits.Ranges(tenantlimits.EndpointCIDRs)...)
	}
	for _, prefix := range reachable.Summarize() {
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: prefix.String()}})
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{managedByLabel: managedBy},
			Annotations: map[string]string{wire.ManagedByNamespaceMapAnnotation: client.ObjectKeyFromObject(nm).String()},
		},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{Ports: dns}, {To: peers}},
		},
	}
}

// allBut returns all addresses of a family, except those of this cluster and of metadata services.
func allBut(all string, own ipmap.Ranges) *networkingv1.IPBlock {
	family := netip.MustParsePrefix(all)
	block := &networkingv1.IPBlock{CIDR: all}
	excepted := append(append(ipmap.Ranges{}, own...), metadataServices...)
	for _, prefix := range excepted.Summarize() {
		if prefix.Addr().Is4() == family.Addr().Is4() && prefix.Bits() > 0 {
			block.Except = append(block.Except, prefix.String())
		}
	}
	return block
}
