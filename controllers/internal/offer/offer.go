// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package offer decides which of a provider's resources its consumers are granted, and sets this offer in the status of
// ResourceSlices.
package offer

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

// Offer describes the resources, classes and labels that this cluster grants to consumers. The zero value grants every
// request, and offers no classes.
type Offer struct {
	// Resources is the amount of each resource that is granted if a ResourceSlice does not request the resource.
	Resources corev1.ResourceList
	// Limit is the maximum of each resource that may be granted to all ResourceSlices of a consumer together. Resources
	// that are not in the list are unlimited.
	Limit corev1.ResourceList
	// OtherClasses means that other controllers decide about ResourceSlices, even about those of the default class.
	OtherClasses bool
	// Storage offers the StorageClasses of this cluster. DefaultStorageClass is the name of the default class. If it is
	// empty, the cluster's own default class is used.
	Storage             bool
	DefaultStorageClass string
	// IngressClasses and LoadBalancerClasses are the offered classes. At most one class in each list may be the
	// default.
	IngressClasses      []offloading.IngressType
	LoadBalancerClasses []offloading.LoadBalancerType
	// Labels are the labels that virtual nodes get.
	Labels map[string]string
}

// IsResponsibleFor reports whether this cluster's controllers decide about the resources of a slice.
func (o *Offer) IsResponsibleFor(slice *auth.ResourceSlice) bool {
	return !o.OtherClasses && (slice.Spec.Class == "" || slice.Spec.Class == auth.DefaultResourceSliceClass)
}

// defaultClassAnnotation is the annotation with which Kubernetes marks the default StorageClass.
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

// Publisher writes offers into ResourceSlices. It is safe for concurrent use.
type Publisher struct {
	Offer Offer
	// Client reads StorageClasses. Live, which must not be cached, reads recent grants.
	Client, Live client.Reader
}

// PublishOffer decides about the resources of a slice, and sets the offer in its status. It does not write the slice to
// the API server. A request that exceeds the limit is denied, unless the slice already has a grant: then this grant
// stays accepted and unchanged.
func (p *Publisher) PublishOffer(ctx context.Context, slice *auth.ResourceSlice, desired corev1.ResourceList) error {
	refused, err := p.excessReasons(ctx, slice, desired)
	if err != nil {
		return err
	}
	message := "All requested resources were granted"
	switch {
	case refused != "" && slice.Status.Decision(auth.ResourcesCondition) != auth.ResourceSliceAccepted:
		DenyResources(slice, refused)
		return nil
	case refused != "":
		message = refused + ". The previous grant is kept"
	default:
		slice.Status.Resources = desired
	}
	if slice.Status.StorageClasses, err = p.storageClasses(ctx); err != nil {
		return err
	}
	offer := &p.Offer
	slice.Status.IngressClasses, slice.Status.LoadBalancerClasses, slice.Status.NodeLabels = offer.IngressClasses, offer.LoadBalancerClasses, offer.Labels
	SetCondition(slice, auth.ResourcesCondition, auth.ResourceSliceAccepted, AcceptedReason, message)
	return nil
}

// excessReasons returns why the request of a slice cannot be granted, or an empty string if it can.
func (p *Publisher) excessReasons(ctx context.Context, slice *auth.ResourceSlice, desired corev1.ResourceList) (string, error) {
	var reasons []string
	for _, name := range slices.Sorted(maps.Keys(desired)) {
		if quantity := desired[name]; quantity.Sign() < 0 {
			reasons = append(reasons, fmt.Sprintf("spec.resources[%s] is %s, which is negative", name, quantity.String()))
		}
	}
	if len(reasons) > 0 || len(p.Offer.Limit) == 0 {
		return strings.Join(reasons, "; "), nil
	}
	others := &auth.ResourceSliceList{}
	// The slices are read without a cache, because a cache may lack recent grants.
	if err := p.Live.List(ctx, others, client.InNamespace(slice.Namespace)); err != nil {
		return "", fmt.Errorf("listing the ResourceSlices in namespace %s, %w", slice.Namespace, err)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Offer.Limit)) {
		limit, left := p.Offer.Limit[name], p.Offer.Limit[name]
		for i := range others.Items {
			other := &others.Items[i]
			if other.UID != slice.UID && other.Status.Decision(auth.ResourcesCondition) == auth.ResourceSliceAccepted {
				left.Sub(other.Status.Resources[name])
			}
		}
		asked, named := desired[name]
		if !named {
			// A slice that requests only an offer is granted only the resources that it names, so it cannot exceed the
			// limit of another resource.
			if IsForOffer(slice) {
				continue
			}
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

// storageClasses returns the StorageClasses that this cluster offers, sorted by name. The class of volumes on virtual
// nodes is omitted.
func (p *Publisher) storageClasses(ctx context.Context) (offered []offloading.StorageType, err error) {
	offer := &p.Offer
	if !offer.Storage {
		return nil, nil
	}
	list := &storagev1.StorageClassList{}
	if err := p.Client.List(ctx, list); err != nil {
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

// IsForOffer reports whether a slice requests only an offer, like the slices that refractctl peer creates. Such a slice
// gets neither a certificate nor a Quota.
func IsForOffer(slice *auth.ResourceSlice) bool {
	return slice.Labels[wire.NegotiateLabel] == "true" && slice.Labels[wire.ReplicatedLabel] != "true" && slice.Labels[wire.ReplicationLabel] != "true" && len(slice.Spec.CSR) == 0
}
