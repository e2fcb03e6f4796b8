// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package offer grants resources of a provider to its consumers, and writes the offer into the status of a
// ResourceSlice.
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

// Offer holds the resources, classes and labels that this cluster grants to consumers. The zero value grants every
// request, and offers no classes.
type Offer struct {
	// Resources are the resources that a ResourceSlice is granted by default, if it does not name them.
	Resources corev1.ResourceList
	// Limit is the maximum of each resource that all ResourceSlices of a consumer may be granted together. A resource
	// that is not in the list is unlimited.
	Limit corev1.ResourceList
	// OtherClasses means that other controllers decide on ResourceSlices, even on ResourceSlices of the default class.
	OtherClasses bool
	// Storage offers the StorageClasses of this cluster. DefaultStorageClass names the default class; if it is empty,
	// the cluster's default applies.
	Storage             bool
	DefaultStorageClass string
	// IngressClasses and LoadBalancerClasses are the offered classes. One class of each list may be the default.
	IngressClasses      []offloading.IngressType
	LoadBalancerClasses []offloading.LoadBalancerType
	// Labels are set on virtual nodes.
	Labels map[string]string
}

// IsResponsibleFor reports whether the controllers of this cluster decide on the resources of a slice.
func (o *Offer) IsResponsibleFor(slice *auth.ResourceSlice) bool {
	return !o.OtherClasses && (slice.Spec.Class == "" || slice.Spec.Class == auth.DefaultResourceSliceClass)
}

// defaultClassAnnotation marks the default StorageClass (Kubernetes).
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

// Publisher writes offers into ResourceSlices. It is safe for concurrent use.
type Publisher struct {
	Offer Offer
	// Client reads StorageClasses. Live, which must not be cached, reads recent grants.
	Client, Live client.Reader
}

// PublishOffer decides on the resources of a slice, and sets the offer in its status without storing it. A request
// that exceeds the limit is denied. If the slice already has a grant, it is kept.
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

// excessReasons returns the reasons why the request of a slice cannot be granted, or an empty string if it can.
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
	// The slices are read without a cache, because the cache may lack recent grants.
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
			// A slice that was created for an offer is granted only the resources that it names.
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

// storageClasses returns the StorageClasses of this cluster sorted by name. StorageClasses of virtual nodes are left
// out.
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

// IsForOffer reports whether a slice only requests an offer, as refractctl peer creates it. Such a slice gets neither
// a certificate nor a Quota.
func IsForOffer(slice *auth.ResourceSlice) bool {
	return slice.Labels[wire.NegotiateLabel] == "true" && slice.Labels[wire.ReplicatedLabel] != "true" && slice.Labels[wire.ReplicationLabel] != "true" && len(slice.Spec.CSR) == 0
}
