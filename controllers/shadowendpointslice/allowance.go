// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowendpointslice

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// allowance describes the addresses that the endpoints of a consumer may use.
type allowance struct {
	// own contains the ranges of this cluster. No consumer may use them.
	own ipmap.Ranges
	// restricted is true if ranges are configured for the consumer. rangesOf returns the ranges that are configured for
	// a cluster.
	restricted bool
	rangesOf   func(cluster string) (ipmap.Ranges, error)
	// hosts is true if host names are allowed as addresses.
	hosts bool
}

// allowanceOf returns the addresses that the consumer of a remote namespace may use.
func (c *Controller) allowanceOf(ctx context.Context, namespace *corev1.Namespace, origin string) (*allowance, error) {
	own, err := c.options.OwnRanges()
	if err != nil {
		return nil, err
	}
	limits, err := c.options.Limits.With(namespace.Annotations)
	if err != nil {
		return nil, fmt.Errorf("reading the limits of namespace %s, %w", namespace.Name, err)
	}
	a := &allowance{own: own, hosts: limits.Enabled(tenantlimits.FQDNEndpoints)}
	a.restricted = len(c.options.RangesOf[origin]) > 0 || !limits.IsDefault(tenantlimits.EndpointCIDRs)
	a.rangesOf = func(cluster string) (ipmap.Ranges, error) {
		if ranges := c.options.RangesOf[cluster]; len(ranges) > 0 {
			return ranges, nil
		}
		if cluster == origin {
			return limits.Ranges(tenantlimits.EndpointCIDRs), nil
		}
		return c.rangesOfThird(ctx, cluster)
	}
	return a, nil
}

// rangesOfThird returns the ranges that are configured on the tenant namespace of a third cluster, or no ranges. The
// setting for all consumers does not apply, because it does not belong to a particular cluster.
func (c *Controller) rangesOfThird(ctx context.Context, cluster string) (ipmap.Ranges, error) {
	tenant := &corev1.Namespace{}
	err := c.client.Get(ctx, client.ObjectKey{Name: wire.TenantNamespace(cluster)}, tenant)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting the tenant namespace of cluster %s, %w", cluster, err)
	}
	if tenant.Labels[wire.RemoteClusterIDLabel] != cluster || tenant.Annotations[tenantlimits.EndpointCIDRs.Annotation()] == "" {
		return nil, nil
	}
	limits, err := tenantlimits.Limits{}.With(tenant.Annotations)
	if err != nil {
		return nil, fmt.Errorf("reading the limits of namespace %s, %w", tenant.Name, err)
	}
	return limits.Ranges(tenantlimits.EndpointCIDRs), nil
}
