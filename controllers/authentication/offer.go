// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// Offer is what this cluster grants to consumers. The zero value grants every request, and offers no classes.
type Offer struct {
	// Resources that a ResourceSlice gets which does not name them.
	Resources corev1.ResourceList
	// Limit is how much each consumer may be granted by all of its ResourceSlices together; a resource that is not named has none.
	Limit corev1.ResourceList
	// OtherClasses leaves also ResourceSlices of the default class to other controllers.
	OtherClasses bool
	// Storage offers the StorageClasses of this cluster; DefaultStorageClass names the default one, "" for that of the cluster.
	Storage             bool
	DefaultStorageClass string
	// IngressClasses and LoadBalancerClasses, one of which may be the default.
	IngressClasses      []offloading.IngressType
	LoadBalancerClasses []offloading.LoadBalancerType
	// Labels of virtual nodes.
	Labels map[string]string
}

// defaultClassAnnotation marks the default StorageClass. (Kubernetes)
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

// grant decides on the resources of a slice.
func (c *ResourceSlices) grant(ctx context.Context, tenant *auth.Tenant, slice *auth.ResourceSlice) error {
	offer := &c.options.Offer
	deny := func(format string, arguments ...any) error {
		decide(slice, auth.ResourcesCondition, auth.ResourceSliceDenied, resourcesDeniedReason, fmt.Sprintf(format, arguments...))
		return nil
	}
	decision := slice.Status.Decision(auth.ResourcesCondition)
	switch {
	case tenant.Spec.TenantCondition == auth.TenantDrained:
		return deny("consumer %s is drained: an administrator of the provider sets spec.tenantCondition of its Tenant to Active", tenant.Spec.ClusterID)
	case tenant.Spec.TenantCondition == auth.TenantCordoned && decision == auth.ResourceSliceAccepted:
		return nil
	case tenant.Spec.TenantCondition == auth.TenantCordoned:
		return deny("consumer %s is cordoned: an administrator of the provider sets spec.tenantCondition of its Tenant to Active", tenant.Spec.ClusterID)
	case slice.Spec.Class != "" && slice.Spec.Class != auth.DefaultResourceSliceClass || offer.OtherClasses:
		return nil // another owner's
	}
	desired := corev1.ResourceList{}
	maps.Copy(desired, offer.Resources)
	maps.Copy(desired, slice.Spec.Resources)
	refused, err := c.exceeds(ctx, slice, desired)
	if err != nil {
		return err
	}
	message := "All requested resources were granted"
	switch {
	case refused != "" && decision != auth.ResourceSliceAccepted:
		return deny("%s", refused)
	case refused != "":
		message = refused + ". The previous grant is kept"
	default:
		slice.Status.Resources = desired
	}
	if slice.Status.StorageClasses, err = c.storageClasses(ctx); err != nil {
		return err
	}
	slice.Status.IngressClasses, slice.Status.LoadBalancerClasses, slice.Status.NodeLabels = offer.IngressClasses, offer.LoadBalancerClasses, offer.Labels
	decide(slice, auth.ResourcesCondition, auth.ResourceSliceAccepted, resourcesAcceptedReason, message)
	return nil
}

// exceeds says why a slice cannot have what it asks for, "" when it can.
func (c *ResourceSlices) exceeds(ctx context.Context, slice *auth.ResourceSlice, desired corev1.ResourceList) (string, error) {
	var reasons []string
	for _, name := range slices.Sorted(maps.Keys(desired)) {
		if quantity := desired[name]; quantity.Sign() < 0 {
			reasons = append(reasons, fmt.Sprintf("spec.resources[%s] is %s, which is negative", name, quantity.String()))
		}
	}
	if len(reasons) > 0 || len(c.options.Offer.Limit) == 0 {
		return strings.Join(reasons, "; "), nil
	}
	others := &auth.ResourceSliceList{}
	if err := c.live.List(ctx, others, client.InNamespace(slice.Namespace)); err != nil { // the cache may lack what was granted a moment ago
		return "", fmt.Errorf("listing the ResourceSlices in namespace %s, %w", slice.Namespace, err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.options.Offer.Limit)) {
		limit, left := c.options.Offer.Limit[name], c.options.Offer.Limit[name]
		for i := range others.Items {
			other := &others.Items[i]
			if other.UID != slice.UID && other.Status.Decision(auth.ResourcesCondition) == auth.ResourceSliceAccepted {
				left.Sub(other.Status.Resources[name])
			}
		}
		asked, named := desired[name]
		if !named {
			reasons = append(reasons, fmt.Sprintf("spec.resources[%s] is missing, and the provider limits it", name))
		} else if asked.Cmp(left) > 0 {
			if left.Sign() < 0 {
				left = resource.Quantity{}
			}
			reasons = append(reasons, fmt.Sprintf("spec.resources[%s] is %s, but only %s of the %s that the provider grants to this consumer are left", name, asked.String(), left.String(), limit.String()))
		}
	}
	return strings.Join(reasons, "; "), nil
}

// storageClasses returns those of this cluster, but for virtual ones, sorted by name.
func (c *ResourceSlices) storageClasses(ctx context.Context) (offered []offloading.StorageType, err error) {
	offer := &c.options.Offer
	if !offer.Storage {
		return nil, nil
	}
	list := &storagev1.StorageClassList{}
	if err := c.client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing StorageClasses, %w", err)
	}
	for i := range list.Items {
		class := &list.Items[i]
		if class.Provisioner == wire.StorageProvisioner {
			continue
		}
		isDefault := class.Name == offer.DefaultStorageClass || offer.DefaultStorageClass == "" && class.Annotations[defaultClassAnnotation] == "true"
		offered = append(offered, offloading.StorageType{StorageClassName: class.Name, Default: isDefault})
	}
	slices.SortFunc(offered, func(a, b offloading.StorageType) int { return strings.Compare(a.StorageClassName, b.StorageClassName) })
	return offered, nil
}
