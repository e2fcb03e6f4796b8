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

// request is the ResourceSlice by which the provider is asked what the virtual node may offer. Its controllers answer in the status, which
// the consumer's controllers follow from then on.
func (o *Options) request() *auth.ResourceSlice {
	consumer, provider := o.Consumer.ID(), o.Provider.ID()
	labels := map[string]string{wire.NegotiateLabel: "true", wire.RemoteClusterIDLabel: consumer}
	return &auth.ResourceSlice{ObjectMeta: meta(wire.TenantNamespace(consumer), cmp.Or(o.VirtualNode, provider), labels), Spec: auth.ResourceSliceSpec{
		ConsumerClusterID: ptr.To(core.ClusterID(consumer)), ProviderClusterID: ptr.To(core.ClusterID(provider)), Class: auth.DefaultResourceSliceClass, Resources: o.Resources,
	}}
}

// ask the provider, which may have no ResourceSlices.
func (o *Options) ask(ctx context.Context) error {
	err := o.Provider.apply(ctx, o.request())
	if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		o.say("%s: warning: the cluster has no CRD for ResourceSlices, so it offers nothing: upgrade Refract and its CRDs there", o.Provider.ID())
		return nil
	}
	return err
}

// negotiate asks a provider for one more virtual node of a peering, and hears what it offers. With an invitation one cannot ask.
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

// CheckRequest finds out, before a virtual node is removed, whether WithdrawRequest can withdraw what the provider was asked for it. ProviderID is
// that of the VirtualNode, or empty if it is gone.
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
	// Other clusters may have the same ids.
	if err := o.checkTenants(ctx); err != nil {
		return err
	}
	return o.Provider.lacks(ctx, only([]right{manage(auth.GroupVersion.Group, "resourceslices")}, "delete"))
}

// withdraws reports whether a request is withdrawn with its virtual node. That of the first virtual node stays until the end of the peering: others
// have its classes. So do those at a provider that runs Liqo, or that is accessed with an invitation.
func (o *Options) withdraws() bool {
	return !o.Provider.liqo && o.Provider.invitation == nil && o.VirtualNode != o.Provider.ID()
}

// WithdrawRequest removes what the provider was asked for a virtual node, which is gone. It reports whether the provider has had such a request.
// CheckRequest must have succeeded.
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

// requests returns the ResourceSlices that this program has written for a consumer.
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

// hear what the provider offers. One that does not answer in time offers nothing yet; the controllers follow it when it does.
func (o *Options) hear(ctx context.Context) error {
	var slice *auth.ResourceSlice
	var own bool
	asked := time.Now()
	err := o.await(ctx, "offer of "+o.Provider.ID(), func(ctx context.Context) (string, error) {
		all := &auth.ResourceSliceList{}
		err := o.Provider.Client.List(ctx, all, client.InNamespace(wire.TenantNamespace(o.Consumer.ID())))
		if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return "", nil // it is an older version
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

// covers reports whether all that was asked for was granted. More is none of this cluster's business: an invitation may be for more.
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

// negotiated has a virtual node offer what the provider grants, where the user has not set it, by a flag or on the VirtualNode that is there.
// As long as the provider says nothing, what is there stays.
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
	maps.Copy(vn.Spec.ResourceQuota.Hard, offer.Resources) // the flags are what was asked for
	request.Apply(offer, vn)
	return nil
}
