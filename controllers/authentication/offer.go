// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/controllers/internal/offer"
)

// grant decides which resources of a slice are granted.
func (c *ResourceSlices) grant(ctx context.Context, tenant *auth.Tenant, slice *auth.ResourceSlice) error {
	decision := slice.Status.Decision(auth.ResourcesCondition)
	switch {
	case tenant.Spec.TenantCondition == auth.TenantDrained:
		offer.DenyResources(slice, "consumer "+string(tenant.Spec.ClusterID)+" is drained: an administrator of the provider sets spec.tenantCondition of its Tenant to Active")
		return nil
	case tenant.Spec.TenantCondition == auth.TenantCordoned && decision == auth.ResourceSliceAccepted:
		return nil
	case tenant.Spec.TenantCondition == auth.TenantCordoned:
		offer.DenyResources(slice, "consumer "+string(tenant.Spec.ClusterID)+" is cordoned: an administrator of the provider sets spec.tenantCondition of its Tenant to Active")
		return nil
	case !c.publisher.Offer.IsResponsibleFor(slice):
		return nil // another controller grants the resources
	}
	desired := corev1.ResourceList{}
	maps.Copy(desired, c.publisher.Offer.Resources)
	maps.Copy(desired, slice.Spec.Resources)
	return c.publisher.PublishOffer(ctx, slice, desired)
}
