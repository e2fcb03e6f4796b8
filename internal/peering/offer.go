// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/negotiation"
)

// request returns the ResourceSlice that requests the virtual node's resources from the provider. The controllers of
// the provider answer in its status. The consumer's controllers follow the status from then on.
func (o *Options) request() *auth.ResourceSlice {
	consumer, provider := o.Consumer.ID(), o.Provider.ID()
	labels := map[string]string{wire.NegotiateLabel: "true", wire.RemoteClusterIDLabel: consumer}
	return &auth.ResourceSlice{ObjectMeta: meta(wire.TenantNamespace(consumer), cmp.Or(o.VirtualNode, provider), labels), Spec: auth.ResourceSliceSpec{
		ConsumerClusterID: ptr.To(core.ClusterID(consumer)), ProviderClusterID: ptr.To(core.ClusterID(provider)), Class: auth.DefaultResourceSliceClass, Resources: o.Resources,
	}}
}

// ask creates the request on the provider. An older provider may not serve ResourceSlices.
func (o *Options) ask(ctx context.Context) error {
	err := o.Provider.apply(ctx, o.request())
	if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		o.say("%s: warning: the cluster has no CRD for ResourceSlices, so it offers nothing: upgrade Refract and its CRDs there", o.Provider.ID())
		return nil
	}
	return err
}

// negotiate requests one more virtual node of a peering, and waits for the offer of the provider. With an invitation
// nothing can be requested.
func (o *Options) negotiate(ctx context.Context) error {
	if o.Provider.invitation == nil {
		exists, err := o.Provider.tenant(ctx, o.Consumer)
		if err != nil {
			return err
		}
		if !exists {
			return fmt.Errorf("cluster %s: there is no namespace %s: join it first with refractctl peer", o.Provider.Name, wire.TenantNamespace(o.Consumer.ID()))
		}
		if err := o.ask(ctx); err != nil {
			return err
		}
	}
	return o.hear(ctx)
}

// CheckRequest determines, before a virtual node is removed, whether WithdrawRequest can withdraw its request at the
// provider. ProviderID is the cluster ID in the VirtualNode, or empty if the VirtualNode no longer exists.
func (o *Options) CheckRequest(ctx context.Context) error {
	if err := errors.Join(o.Consumer.inspect(ctx), o.Provider.inspectAsProvider(ctx)); err != nil {
		return err
	}
	if o.ProviderID != "" && o.ProviderID != o.Provider.ID() {
		return fmt.Errorf("cluster %s has the id %q, and virtual node %s is of %q: give the context of that cluster", o.Provider.Name, o.Provider.ID(), o.VirtualNode, o.ProviderID)
	}
	if o.Provider.invitation != nil && o.Provider.invitation.Consumer != o.Consumer.ID() {
		return fmt.Errorf("the invitation of %s is for cluster %q, and %s is %q", o.Provider.ID(), o.Provider.invitation.Consumer, o.Consumer.Name, o.Consumer.ID())
	}
	if !o.withdraws() {
		return nil
	}
	// Other clusters may have the same IDs.
	if err := o.checkTenants(ctx); err != nil {
		return err
	}
	return o.Provider.lacks(ctx, only([]right{manage(auth.GroupVersion.Group, "resourceslices")}, "delete"))
}

// withdraws reports whether the request of a virtual node is withdrawn when the node is removed. The request of the
// first virtual node stays until the end of the peering, because other virtual nodes use its classes. Requests at a
// provider that runs Liqo, or that is accessed with an invitation, stay too.
func (o *Options) withdraws() bool {
	return !o.Provider.liqo && o.Provider.invitation == nil && o.VirtualNode != o.Provider.ID()
}

// WithdrawRequest deletes the request of a removed virtual node at the provider. It reports whether the request
// existed. CheckRequest must have succeeded.
func (o *Options) WithdrawRequest(ctx context.Context) (found bool, err error) {
	request, _, err := o.Provider.find(ctx, o.request())
	// An older version has no ResourceSlices, and does not let a consumer read them.
	if err == nil && request == nil || apimeta.IsNoMatchError(err) || apierrors.IsForbidden(err) && !o.withdraws() {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	switch {
	case !o.withdraws():
		o.say("%s: ResourceSlice %s stays until the peering ends", o.Provider.ID(), client.ObjectKeyFromObject(request))
		return true, nil
	case !IsOurs(request) || request.Labels[wire.NegotiateLabel] != "true":
		o.say("%s: warning: ResourceSlice %s was not created by refractctl, so it stays: delete it there if nobody needs it", o.Provider.ID(), client.ObjectKeyFromObject(request))
		return false, nil
	}
	if err := o.Provider.discard(ctx, request); err != nil {
		return true, err
	}
	o.say("%s: ResourceSlice %s is removed", o.Provider.ID(), client.ObjectKeyFromObject(request))
	return true, nil
}

// requests returns the ResourceSlices that this program has created for a consumer.
func (o *Options) requests(ctx context.Context) ([]client.Object, error) {
	all := &auth.ResourceSliceList{}
	err := o.Provider.Client.List(ctx, all, client.InNamespace(wire.TenantNamespace(o.Consumer.ID())), client.MatchingLabels{wire.NegotiateLabel: "true"})
	if err != nil && !apimeta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("cluster %s: listing ResourceSlices, %w", o.Provider.Name, err)
	}
	var objects []client.Object
	for i := range all.Items {
		objects = append(objects, &all.Items[i])
	}
	return objects, nil
}

// hear waits for the offer of the provider. If the provider does not answer in time, there is no offer yet. The
// controllers follow the offer when the provider answers later.
func (o *Options) hear(ctx context.Context) error {
	var slice *auth.ResourceSlice
	var own bool
	asked := time.Now()
	err := o.await(ctx, "offer of "+o.Provider.ID(), func(ctx context.Context) (string, error) {
		all := &auth.ResourceSliceList{}
		err := o.Provider.Client.List(ctx, all, client.InNamespace(wire.TenantNamespace(o.Consumer.ID())))
		if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return "", nil // an older provider
		}
		if err != nil {
			return "", fmt.Errorf("cluster %s: listing ResourceSlices, %w", o.Provider.Name, err)
		}
		slice, own = negotiation.Find(all.Items, o.VirtualNode, o.Provider.ID())
		if slice == nil || time.Since(asked) > grantPatience {
			return "", nil
		}
		if answer, _ := negotiation.AnswerOf(slice); answer != negotiation.Accepted || own && !covers(slice.Status.Resources, o.Resources) {
			return "the provider has not granted the requested resources yet", nil
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	if slice == nil {
		o.say("%s: warning: the resources of virtual node %s were not negotiated, because %s publishes no offers: upgrade it", o.Consumer.ID(), o.VirtualNode, o.Provider.ID())
		return nil
	}
	switch answer, message := negotiation.AnswerOf(slice); answer {
	case negotiation.Accepted:
		offer, problems := negotiation.Usable(slice, own, o.Resources)
		for _, problem := range problems {
			o.say("%s: warning: part of the offer of %s is ignored: %s", o.Consumer.ID(), o.Provider.ID(), problem)
		}
		if own && !covers(offer.Resources, o.Resources) {
			o.say("%s: warning: granted fewer resources than requested: %.400q", o.Provider.ID(), slice.Status.Condition(auth.ResourcesCondition).Message)
		}
		o.offer = &offer
	case negotiation.Denied:
		return fmt.Errorf("cluster %s denies ResourceSlice %s: %s", o.Provider.Name, slice.Name, message)
	default:
		o.say("%s: warning: %s has not answered the ResourceSlice of virtual node %s: upgrade it, and set tenants.offers=true there", o.Consumer.ID(), o.Provider.ID(), o.VirtualNode)
	}
	return nil
}

// covers reports whether all requested resources were granted. More may be granted: an invitation may be for more.
func covers(granted, asked corev1.ResourceList) bool {
	for name, quantity := range asked {
		if is, ok := granted[name]; !ok || is.Cmp(quantity) < 0 {
			return false
		}
	}
	return true
}

// explicit returns the fields that the user has set.
func (n *NodeOptions) explicit() (fields []negotiation.Field) {
	if len(n.StorageClasses) > 0 {
		fields = append(fields, negotiation.StorageClasses)
	}
	if len(n.IngressClasses) > 0 {
		fields = append(fields, negotiation.IngressClasses)
	}
	if len(n.LoadBalancerClasses) > 0 {
		fields = append(fields, negotiation.LoadBalancerClasses)
	}
	if len(n.Labels) > 0 {
		fields = append(fields, negotiation.Labels)
	}
	return fields
}

// recordAccepted annotates the virtual node with the labels that the provider may offer.
func (o *Options) recordAccepted(vn *offloading.VirtualNode) {
	if len(o.AcceptedLabels) > 0 {
		metav1.SetMetaDataAnnotation(&vn.ObjectMeta, wire.AcceptedLabelsAnnotation, strings.Join(o.AcceptedLabels, ","))
	}
}

// keepAccepted keeps the accepted labels of the virtual node unless the user has set others.
func (o *Options) keepAccepted(vn *offloading.VirtualNode) (err error) {
	if o.AcceptedLabels == nil {
		o.AcceptedLabels, err = negotiation.AcceptedLabels(vn)
	}
	return err
}

// negotiated sets the resources and settings that the provider grants on a virtual node, unless the user has set them
// with a flag or on the existing VirtualNode. As long as there is no offer, the existing values stay.
func (o *Options) negotiated(ctx context.Context, vn *offloading.VirtualNode) error {
	if vn.Annotations == nil {
		vn.Annotations = map[string]string{}
	}
	maps.Copy(vn.Annotations, negotiation.Annotations(o.Resources, o.Node.explicit()...))
	o.recordAccepted(vn)
	present := &offloading.VirtualNode{}
	if err := o.Consumer.Client.Get(ctx, client.ObjectKeyFromObject(vn), present); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cluster %s: getting VirtualNode %s, %w", o.Consumer.Name, client.ObjectKeyFromObject(vn), err)
	}
	vn.ManagedFields = present.ManagedFields
	request, err := negotiation.Requested(vn)
	vn.ManagedFields = nil
	if err != nil {
		return err
	}
	offer := o.offer
	if offer == nil {
		spec := &present.Spec
		offer = &negotiation.Offer{StorageClasses: spec.StorageClasses, IngressClasses: spec.IngressClasses, LoadBalancerClasses: spec.LoadBalancerClasses, Labels: spec.Labels}
	}
	if refused := request.Restrict(offer, o.AcceptedLabels, present); len(refused) > 0 {
		o.say("%s: warning: %s", o.Consumer.ID(), negotiation.DescribeRefused(refused, o.Provider.ID()))
	}
	vn.Spec.ResourceQuota.Hard = vn.Spec.ResourceQuota.Hard.DeepCopy()
	maps.Copy(vn.Spec.ResourceQuota.Hard, offer.Resources) // the requested resources are the flags
	request.Apply(offer, vn)
	return nil
}
