// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
)

// PodRanges returns the pod ranges of a cluster. They come from Liqo's Networks if these exist, or else from the nodes.
// Nodes have no pod ranges if the network plugin uses its own IPAM.
func (c *Cluster) PodRanges(ctx context.Context) ([]netip.Prefix, error) {
	if c.Invitation != nil {
		return c.Invitation.PodRanges, nil
	}
	ranges, err := c.liqoRanges(ctx, wire.PodNetwork)
	if err != nil || len(ranges) > 0 {
		return ranges, err
	}
	nodes := &corev1.NodeList{}
	if err := c.Client.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("cluster %s: listing nodes, %w", c.Name, err)
	}
	for i := range nodes.Items {
		ranges = appendRanges(ranges, nodes.Items[i].Spec.PodCIDRs)
	}
	return ranges, nil
}

// ClusterPodRanges returns the ranges from which the controller manager of Kubernetes gives pod ranges to nodes, also those that are
// added later. It returns none if the controller manager does not run as a pod of the cluster, or has no such range.
func (c *Cluster) ClusterPodRanges(ctx context.Context) ([]netip.Prefix, error) {
	pods := &corev1.PodList{}
	err := c.Client.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"component": "kube-controller-manager"})
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("cluster %s: listing the pods of the controller manager of Kubernetes, %w", c.Name, err)
	}
	for i := range pods.Items {
		for _, container := range pods.Items[i].Spec.Containers {
			for _, argument := range slices.Concat(container.Command, container.Args) {
				if cidrs, is := strings.CutPrefix(argument, "--cluster-cidr="); is {
					return appendRanges(nil, strings.Split(cidrs, ",")), nil
				}
			}
		}
	}
	return nil, nil
}

// ServiceRanges returns the cluster IP ranges of a cluster. They come from Liqo's Networks if these exist, or else from
// the ServiceCIDRs, which Kubernetes has since version 1.33. For older clusters, only the address of the API server's
// Service is known.
func (c *Cluster) ServiceRanges(ctx context.Context) ([]netip.Prefix, error) {
	if c.Invitation != nil {
		return c.Invitation.ServiceRanges, nil
	}
	ranges, err := c.liqoRanges(ctx, wire.ServiceNetwork)
	if err != nil || len(ranges) > 0 {
		return ranges, err
	}
	all := &networkingv1.ServiceCIDRList{}
	if err := c.Client.List(ctx, all); err != nil && !isUnavailable(err) {
		return nil, fmt.Errorf("cluster %s: listing ServiceCIDRs, %w", c.Name, err)
	}
	for i := range all.Items {
		ranges = appendRanges(ranges, all.Items[i].Spec.CIDRs)
	}
	if len(ranges) > 0 {
		return ranges, nil
	}
	kubernetes := &corev1.Service{}
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, kubernetes); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("cluster %s: getting Service default/kubernetes, %w", c.Name, err)
	}
	for _, address := range kubernetes.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(address); err == nil {
			ranges = append(ranges, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return ranges, nil
}

// networks is the kind of objects in which Liqo records the ranges of a cluster.
var networks = schema.GroupVersionKind{Group: "ipam.liqo.io", Version: "v1alpha1", Kind: "NetworkList"}

// liqoRanges returns the cluster's own ranges from Liqo's Networks of the given type. It returns none if Liqo's network
// module is not installed.
func (c *Cluster) liqoRanges(ctx context.Context, networkType string) (ranges []netip.Prefix, err error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(networks)
	err = c.Client.List(ctx, all, client.MatchingLabels{wire.NetworkTypeLabel: networkType})
	if err != nil && !isUnavailable(err) {
		return nil, fmt.Errorf("cluster %s: listing the Networks of Liqo, %w", c.Name, err)
	}
	for i := range all.Items {
		cidr, _, err := unstructured.NestedString(all.Items[i].Object, "spec", "cidr")
		if err != nil {
			return nil, fmt.Errorf("cluster %s: reading Network %s, %w", c.Name, client.ObjectKeyFromObject(&all.Items[i]), err)
		}
		ranges = appendRanges(ranges, []string{cidr})
	}
	return ranges, nil
}

// isUnavailable reports whether err means that a resource is not served or may not be listed.
func isUnavailable(err error) bool {
	return apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
}

// appendRanges appends the well-formed CIDRs to ranges.
func appendRanges(ranges []netip.Prefix, cidrs []string) []netip.Prefix {
	for _, cidr := range cidrs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			ranges = append(ranges, prefix)
		}
	}
	return ranges
}
