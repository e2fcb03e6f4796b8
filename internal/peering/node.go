// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
)

// NodeOptions are the settings of a virtual node, except its resources.
type NodeOptions struct {
	// Labels are the labels of the Node.
	Labels map[string]string
	// NodeSelector and RuntimeClass apply to its pods on the provider.
	NodeSelector map[string]string
	RuntimeClass string
	// StorageClasses, IngressClasses and LoadBalancerClasses are the classes of the provider that the node offers.
	StorageClasses      []offloading.StorageType
	IngressClasses      []offloading.IngressType
	LoadBalancerClasses []offloading.LoadBalancerType
}

func (n *NodeOptions) patch() *offloading.OffloadingPatch {
	if len(n.NodeSelector) == 0 && n.RuntimeClass == "" {
		return nil
	}
	patch := &offloading.OffloadingPatch{NodeSelector: n.NodeSelector}
	if n.RuntimeClass != "" {
		patch.RuntimeClassName = &n.RuntimeClass
	}
	return patch
}

// CreateNode creates one more virtual node for a provider that this cluster is already joined with, and returns when
// the node is Ready. Only the ID of the provider has to be known. If the provider can be accessed, the resources are
// requested from it. The user has to keep the sum of all virtual nodes of a provider within the resources that the
// provider grants.
func (o *Options) CreateNode(ctx context.Context) error {
	return progress.Ended(ctx, o.createNode(ctx))
}

func (o *Options) createNode(ctx context.Context) error {
	if err := o.Consumer.inspect(ctx); err != nil {
		return err
	}
	reached := o.Provider.Client != nil
	if reached {
		if err := o.Provider.inspectAsProvider(ctx); err != nil {
			return err
		}
		if o.ProviderID != "" && o.Provider.ID() != o.ProviderID {
			return fmt.Errorf("cluster %s has the id %q, not %q as --provider says", o.Provider.Name, o.Provider.ID(), o.ProviderID)
		}
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(o.Provider.ID()), Name: secretName(o.Provider.ID())}
	err := o.Consumer.Client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("cluster %s: there is no Secret %s: join %s first with refractctl peer", o.Consumer.Name, key, o.Provider.ID())
	}
	if err != nil {
		return fmt.Errorf("cluster %s: getting Secret %s, %w", o.Consumer.Name, key, err)
	}
	asLiqo, err := o.joinedAsLiqo(ctx)
	if err != nil {
		return err
	}
	if asLiqo {
		return fmt.Errorf("cluster %s runs Liqo, of which each virtual node has a ResourceSlice: run refractctl peer with --virtual-node=%s", o.Provider.ID(), o.VirtualNode)
	}
	if other, err := o.otherNode(ctx); err != nil || other != nil {
		if err == nil {
			err = o.admitNode(ctx, other)
		}
		return err
	}
	if err := o.keepNode(ctx); err != nil {
		return err
	}
	if err := o.keepNetwork(ctx); err != nil {
		return err
	}
	o.network = o.Network
	checks := []error{o.checkNode(ctx), o.findPullSecrets(ctx), o.Consumer.lacks(ctx, slices.Concat(nodeRights, only(foundRights, "list", "patch")))}
	if reached && o.Provider.invitation == nil {
		checks = append(checks, o.Provider.lacks(ctx, []right{manage(auth.GroupVersion.Group, "resourceslices")}))
	}
	if err := errors.Join(checks...); err != nil || o.DryRun {
		return err
	}
	if err := o.prepareNode(ctx, reached); err != nil {
		return o.takeBack(ctx, err, "refractctl create virtualnode "+o.VirtualNode, "refractctl delete virtualnode "+o.VirtualNode)
	}
	return o.awaitReady(ctx)
}

// prepareNode requests the resources of one more virtual node, if the provider can be reached, and creates the node.
func (o *Options) prepareNode(ctx context.Context, reached bool) error {
	o.Consumer.created, o.Provider.created = nil, nil
	if reached {
		if err := o.negotiate(ctx); err != nil {
			return err
		}
	}
	return o.makeNode(ctx)
}
