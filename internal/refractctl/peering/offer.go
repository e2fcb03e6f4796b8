// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// offeredNode is the provider's offer for a virtual node.
type offeredNode struct {
	// nodeTerms are the settings of the virtual node. If the provider runs Liqo, they include its offer.
	nodeTerms
	// offer is the offer of a provider that runs Refract. It is nil until the provider has responded.
	offer *negotiation.Offer
	// kubeletSecret contains a separate kubeconfig for the virtual kubelet. It is nil if the virtual kubelet uses the
	// same kubeconfig as the controllers.
	kubeletSecret *corev1.Secret
}

// nodeRequest returns the ResourceSlice that requests a virtual node's resources from the provider. The provider's
// controllers respond in its status, and the consumer's controllers apply the response.
func (p *pair) nodeRequest(name string, resources corev1.ResourceList) *auth.ResourceSlice {
	labels := map[string]string{wire.NegotiateLabel: "true", wire.RemoteClusterIDLabel: p.consumer.ID()}
	return &auth.ResourceSlice{ObjectMeta: cluster.Meta(p.tenant.Namespace(), cmp.Or(name, p.provider.ID()), labels), Spec: auth.ResourceSliceSpec{
		ConsumerClusterID: ptr.To(core.ClusterID(p.consumer.ID())), ProviderClusterID: ptr.To(core.ClusterID(p.provider.ID())), Class: auth.DefaultResourceSliceClass, Resources: resources,
	}}
}

// requestNode creates the request on the provider. If the provider has an older version, it may not serve
// ResourceSlices.
func (j *joining) requestNode(ctx context.Context, name string, resources corev1.ResourceList) error {
	err := j.atProvider.Apply(ctx, j.nodeRequest(name, resources))
	if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		j.Report("%s: warning: the cluster has no CRD for ResourceSlices, so it offers nothing: upgrade Refract and its CRDs there", j.provider.ID())
		return nil
	}
	return err
}

// findRequests returns the ResourceSlices that refractctl has created for a consumer.
func (p *pair) findRequests(ctx context.Context) ([]client.Object, error) {
	all := &auth.ResourceSliceList{}
	err := p.provider.Client.List(ctx, all, client.InNamespace(p.tenant.Namespace()), client.MatchingLabels{wire.NegotiateLabel: "true"})
	if err != nil && !apimeta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("cluster %s: listing ResourceSlices, %w", p.provider.Name, err)
	}
	var objects []client.Object
	for i := range all.Items {
		objects = append(objects, &all.Items[i])
	}
	return objects, nil
}

// offerTimeout limits how long a provider may take to respond to a changed request. The controllers of Refract and of
// Liqo take less than a second. With a longer timeout, joining a provider without such a controller would take
// longer.
const offerTimeout = 5 * time.Second

// awaitOffer waits for the offer of the provider. If the provider does not respond in time, the result contains no
// offer. The controllers apply the offer when the provider responds later.
func (p *pair) awaitOffer(ctx context.Context, t *nodeTerms) (*offeredNode, error) {
	var slice *auth.ResourceSlice
	var own bool
	begun := time.Now()
	err := p.Await(ctx, "offer of "+p.provider.ID(), func(ctx context.Context) (string, error) {
		all := &auth.ResourceSliceList{}
		err := p.provider.Client.List(ctx, all, client.InNamespace(p.tenant.Namespace()))
		if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return "", nil // a provider of an older version has no ResourceSlices, or does not allow reading them
		}
		if err != nil {
			return "", fmt.Errorf("cluster %s: listing ResourceSlices, %w", p.provider.Name, err)
		}
		slice, own = negotiation.Find(all.Items, t.name, p.provider.ID())
		if slice == nil || time.Since(begun) > offerTimeout {
			return "", nil
		}
		if answer, _ := negotiation.AnswerOf(slice); answer != negotiation.Accepted || own && !covers(slice.Status.Resources, t.resources) {
			return "the provider has not granted the requested resources yet", nil
		}
		return "", nil
	})
	if err != nil {
		return nil, err
	}
	offer, err := p.readOffer(slice, own, t)
	return &offeredNode{nodeTerms: *t, offer: offer}, err
}

// readOffer returns the offer in a ResourceSlice, or nil if the provider has not responded. It fails if the provider
// denies the request.
func (p *pair) readOffer(slice *auth.ResourceSlice, own bool, t *nodeTerms) (*negotiation.Offer, error) {
	if slice == nil {
		p.Report("%s: warning: the resources of virtual node %s were not negotiated, because %s publishes no offers: upgrade it", p.consumer.ID(), t.name, p.provider.ID())
		return nil, nil //nolint:nilnil // as documented
	}
	switch answer, message := negotiation.AnswerOf(slice); answer {
	case negotiation.Accepted:
		offer, problems := negotiation.Usable(slice, own, t.resources)
		for _, problem := range problems {
			p.Report("%s: warning: part of the offer of %s is ignored: %s", p.consumer.ID(), p.provider.ID(), problem)
		}
		if own && !covers(offer.Resources, t.resources) {
			p.Report("%s: warning: granted fewer resources than requested: %.400q", p.provider.ID(), slice.Status.Condition(auth.ResourcesCondition).Message)
		}
		return &offer, nil
	case negotiation.Denied:
		return nil, fmt.Errorf("cluster %s denies ResourceSlice %s: %s", p.provider.Name, slice.Name, message)
	}
	p.Report("%s: warning: %s has not answered the ResourceSlice of virtual node %s: upgrade it, and set tenants.offers=true there", p.consumer.ID(), p.provider.ID(), t.name)
	return nil, nil //nolint:nilnil // as documented
}

// covers reports whether all requested resources were granted. The provider may have granted more, because the
// resources of an invitation may be higher.
func covers(granted, asked corev1.ResourceList) bool {
	for name, quantity := range asked {
		if is, ok := granted[name]; !ok || is.Cmp(quantity) < 0 {
			return false
		}
	}
	return true
}

// NodeRequest is the resource request of a virtual node on its provider.
type NodeRequest struct {
	*pair
	node string
}

// FindRequest determines whether the request of a virtual node can be withdrawn from the provider. It must be called
// before the virtual node is removed. ProviderID is the cluster ID in the VirtualNode. It is empty if the VirtualNode
// no longer exists.
func (o *Options) FindRequest(ctx context.Context) (*NodeRequest, error) {
	p, err := o.inspect(ctx)
	if err != nil {
		return nil, err
	}
	if o.ProviderID != "" && o.ProviderID != p.provider.ID() {
		return nil, fmt.Errorf("cluster %s has the id %q, and virtual node %s is of %q: give the context of that cluster", p.provider.Name, p.provider.ID(), o.VirtualNode, o.ProviderID)
	}
	if p.provider.IsInvited() && p.provider.Invitation.Consumer != p.consumer.ID() {
		return nil, fmt.Errorf("the invitation of %s is for cluster %q, and %s is %q", p.provider.ID(), p.provider.Invitation.Consumer, p.consumer.Name, p.consumer.ID())
	}
	r := &NodeRequest{pair: p, node: o.VirtualNode}
	if r.isKept() {
		return r, nil
	}
	// If another cluster uses the same ID, the request may belong to another consumer.
	if err := p.checkTenants(ctx); err != nil {
		return nil, err
	}
	return r, p.provider.RequireRights(ctx, cluster.OnlyVerbs([]cluster.Right{cluster.RightToManage(auth.GroupVersion.Group, "resourceslices")}, "delete"))
}

// ProviderID returns the ID of the provider.
func (r *NodeRequest) ProviderID() string { return r.provider.ID() }

// isKept reports whether the request is kept when the virtual node is removed. The request of the first virtual node is
// kept until the end of the peering, because other virtual nodes use its classes. Requests are also kept on a provider
// that runs Liqo or is accessed with an invitation.
func (r *NodeRequest) isKept() bool {
	return r.provider.RunsLiqo || r.provider.IsInvited() || r.node == r.provider.ID()
}

// Withdraw deletes the request of a virtual node that was removed, unless the request is to be kept. found is false if
// there is no request, or if refractctl has not created it.
func (r *NodeRequest) Withdraw(ctx context.Context) (found bool, removal *Removal, err error) {
	remover := cluster.NewRemover(r.provider, false)
	found, err = r.withdraw(ctx, remover)
	return found, &Removal{Consumer: r.consumer.ID(), Provider: r.provider.ID(), Removed: objectsOf(remover.Side, remover.Removed())}, err
}

func (r *NodeRequest) withdraw(ctx context.Context, remover *cluster.Remover) (found bool, err error) {
	request, _, err := r.provider.Find(ctx, r.nodeRequest(r.node, nil))
	// The provider may have an older version that does not serve ResourceSlices or does not permit the consumer to read
	// them.
	if err == nil && request == nil || apimeta.IsNoMatchError(err) || apierrors.IsForbidden(err) && r.isKept() {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	switch {
	case r.isKept():
		r.Report("%s: ResourceSlice %s stays until the peering ends", r.provider.ID(), client.ObjectKeyFromObject(request))
		return true, nil
	case !cluster.IsOurs(request) || request.Labels[wire.NegotiateLabel] != "true":
		r.Report("%s: warning: ResourceSlice %s was not created by refractctl, so it stays: delete it there if nobody needs it", r.provider.ID(), client.ObjectKeyFromObject(request))
		return false, nil
	}
	if err := remover.Delete(ctx, request); err != nil {
		return true, err
	}
	r.Report("%s: ResourceSlice %s is removed", r.provider.ID(), client.ObjectKeyFromObject(request))
	return true, nil
}
