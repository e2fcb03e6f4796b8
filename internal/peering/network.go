// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

// checkRanges refuses pod ranges that overlap: an address would mean a pod here and one there. It does not matter where pods are not meant
// to reach each other, and where a network translates addresses, as Liqo's does.
func (o *Options) checkRanges(ctx context.Context) error {
	if o.OverlappingRanges {
		return nil
	}
	matters, err := o.Consumer.reflectsAddresses(ctx)
	if err != nil || !matters {
		return err
	}
	here, err := o.Consumer.podRanges(ctx)
	if err != nil {
		return err
	}
	there, err := o.Provider.podRanges(ctx)
	if err != nil {
		return err
	}
	for _, one := range here {
		if at := slices.IndexFunc(there, one.Overlaps); at >= 0 {
			return fmt.Errorf("the pod ranges overlap, %s of %s and %s of %s: pods cannot reach each other by address. Install %s without a network between pods "+
				"(--set networking.enabled=false,networking.reflectIPs=false), or give --overlapping-ranges if a network between the clusters translates addresses",
				one, o.Consumer.Name, there[at], o.Provider.Name, o.Consumer.Name)
		}
	}
	return nil
}

// podRanges are those that the nodes of a cluster have. Where the network plugin hands addresses out by itself they have none.
func (c *Cluster) podRanges(ctx context.Context) ([]netip.Prefix, error) {
	if c.invitation != nil {
		return c.invitation.PodRanges, nil
	}
	nodes := &corev1.NodeList{}
	if err := c.Client.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("cluster %s: listing nodes, %w", c.Name, err)
	}
	var ranges []netip.Prefix
	for i := range nodes.Items {
		for _, cidr := range nodes.Items[i].Spec.PodCIDRs {
			if prefix, err := netip.ParsePrefix(cidr); err == nil {
				ranges = append(ranges, prefix)
			}
		}
	}
	return ranges, nil
}

// reflectsAddresses reports whether virtual kubelets show the addresses of pods, as the provider has them.
func (c *Cluster) reflectsAddresses(ctx context.Context) (bool, error) {
	templates := &offloading.VkOptionsTemplateList{}
	if err := c.Client.List(ctx, templates, client.InNamespace(c.installation.Namespace)); err != nil {
		return false, fmt.Errorf("cluster %s: listing VkOptionsTemplates, %w", c.Name, err)
	}
	for i := range templates.Items {
		if slices.Contains(templates.Items[i].Spec.ExtraArgs, "--disable-ip-reflection") {
			return false, nil
		}
	}
	liqo := &unstructured.UnstructuredList{}
	liqo.SetGroupVersionKind(schema.GroupVersionKind{Group: "networking.liqo.io", Version: "v1beta1", Kind: "ConfigurationList"})
	err := c.Client.List(ctx, liqo, client.Limit(1))
	if apimeta.IsNoMatchError(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("cluster %s: listing the Configurations of Liqo's network, %w", c.Name, err)
	}
	return len(liqo.Items) == 0, nil
}
