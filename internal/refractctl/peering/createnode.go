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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/podnetwork"
	"github.com/refract-project/refract/internal/refractctl/tenant"
)

// CreateNode creates one more virtual node for a provider that is already joined with this cluster, and returns when
// the node is Ready. The provider does not have to be accessible, because its ID is sufficient. If the provider can be
// accessed, the resources are requested from it. The user must make sure that all virtual nodes of a provider together
// do not exceed the resources that the provider grants.
func (o *Options) CreateNode(ctx context.Context) (*Joined, error) {
	joined, err := o.createNode(ctx)
	return joined, progress.Ended(ctx, err)
}

func (o *Options) createNode(ctx context.Context) (*Joined, error) {
	p, err := o.inspectJoined(ctx)
	if err != nil {
		return nil, err
	}
	joined := &Joined{Consumer: p.consumer.ID(), Provider: p.provider.ID(), VirtualNode: o.VirtualNode}
	if other, err := p.findOthersNode(ctx, o.VirtualNode); err != nil || other != nil {
		if err == nil {
			err = p.admitNode(ctx, o, other)
		}
		return joined, err
	}
	node, err := p.settleNode(ctx, o)
	if err != nil {
		return nil, err
	}
	settings, _, err := p.settleNetwork(ctx, o.Network, node.declaredRanges)
	if err != nil {
		return nil, err
	}
	node.declaredRanges = settings.ProviderRanges
	pullSecrets, err := p.checkCreate(ctx, node.name)
	if err != nil || o.DryRun {
		return joined, err
	}
	j, network := p.beginJoin(), &podnetwork.Network{Settings: settings, Consumer: p.consumer, Provider: p.provider}
	if err := j.addNode(ctx, node, network, pullSecrets); err != nil {
		return nil, j.takeBack(ctx, err, "refractctl create virtualnode "+node.name, "refractctl delete virtualnode "+node.name)
	}
	return joined, p.awaitReady(ctx, node.name)
}

// inspectJoined inspects the clusters, and checks that they are joined and that more virtual nodes are possible.
func (o *Options) inspectJoined(ctx context.Context) (*pair, error) {
	consumer, err := o.Consumer.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	provider, err := o.Provider.InspectAsProvider(ctx)
	if err != nil {
		return nil, err
	}
	if o.ProviderID != "" && provider.ID() != o.ProviderID {
		return nil, fmt.Errorf("cluster %s has the id %q, not %q as --provider says", provider.Name, provider.ID(), o.ProviderID)
	}
	p := newPair(consumer, provider, o.Progress)
	key := client.ObjectKey{Namespace: wire.TenantNamespace(provider.ID()), Name: identity.SecretName(provider.ID())}
	err = consumer.Client.Get(ctx, key, &corev1.Secret{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("cluster %s: there is no Secret %s: join %s first with refractctl peer", consumer.Name, key, provider.ID())
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %s: getting Secret %s, %w", consumer.Name, key, err)
	}
	asLiqo, err := p.isJoinedAsLiqo(ctx)
	if err != nil {
		return nil, err
	}
	if asLiqo {
		return nil, fmt.Errorf("cluster %s runs Liqo, of which each virtual node has a ResourceSlice: run refractctl peer with --virtual-node=%s", provider.ID(), o.VirtualNode)
	}
	return p, nil
}

// checkCreate checks whether the virtual node can be created. It changes nothing, and reports all problems together.
// It returns the image pull secrets for the virtual kubelet.
func (p *pair) checkCreate(ctx context.Context, name string) (pullSecrets []*corev1.Secret, err error) {
	problems := []error{p.checkNode(ctx, name)}
	pullSecrets, err = p.findPullSecrets(ctx)
	problems = append(problems, err, p.consumer.RequireRights(ctx, slices.Concat(nodeRights, cluster.OnlyVerbs(foundRights, "list", "patch"))))
	if !p.provider.IsAbsent() && !p.provider.IsInvited() {
		problems = append(problems, p.provider.RequireRights(ctx, []cluster.Right{cluster.RightToManage(auth.GroupVersion.Group, "resourceslices")}))
	}
	return pullSecrets, errors.Join(problems...)
}

// addNode creates one more virtual node. If the provider can be reached, addNode first requests the resources from it.
func (j *joining) addNode(ctx context.Context, node *nodeTerms, network *podnetwork.Network, pullSecrets []*corev1.Secret) error {
	offered := &offeredNode{nodeTerms: *node}
	if !j.provider.IsAbsent() {
		var err error
		if offered, err = j.negotiateNode(ctx, node); err != nil {
			return err
		}
	}
	return j.createNode(ctx, offered, network, pullSecrets)
}

// negotiateNode requests the resources of one more virtual node, and waits for the offer of the provider. With an
// invitation, no resources can be requested.
func (j *joining) negotiateNode(ctx context.Context, node *nodeTerms) (*offeredNode, error) {
	if !j.provider.IsInvited() {
		exists, err := j.provider.CheckTenant(ctx, j.consumer)
		if err != nil {
			return nil, err
		}
		if !exists {
			return nil, fmt.Errorf("cluster %s: there is no namespace %s: join it first with refractctl peer", j.provider.Name, j.tenant.Namespace())
		}
		if err := j.requestNode(ctx, node.name, node.resources); err != nil {
			return nil, err
		}
	}
	return j.awaitOffer(ctx, node)
}

// findOthersNode returns the VirtualNode with the given name if another client has created it, such as liqoctl or a
// GitOps tool. Otherwise, it returns nil.
func (p *pair) findOthersNode(ctx context.Context, name string) (*offloading.VirtualNode, error) {
	vn := &offloading.VirtualNode{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(p.provider.ID()), Name: name}
	err := p.consumer.Client.Get(ctx, key, vn)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // as documented
	case err != nil:
		return nil, fmt.Errorf("cluster %s: getting VirtualNode %s, %w", p.consumer.Name, key, err)
	case cluster.IsOurs(vn) || string(vn.Spec.ClusterID) != p.provider.ID() || vn.DeletionTimestamp != nil:
		return nil, nil //nolint:nilnil // as documented
	}
	return vn, nil
}

// admitNode creates the ServiceAccount and the permissions of the virtual kubelet for a VirtualNode that another
// client has created. They are deleted with the VirtualNode. The VirtualNode itself is not changed.
func (p *pair) admitNode(ctx context.Context, o *Options, vn *offloading.VirtualNode) error {
	key := client.ObjectKeyFromObject(vn)
	if o.isNodeDescribed() {
		return fmt.Errorf("cluster %s: VirtualNode %s was not created by refractctl, which does not change it: change its fields where it comes from, and omit the flags for resources, classes, labels and selectors", p.consumer.Name, key)
	}
	if vn.Spec.KubeconfigSecretRef == nil || vn.Spec.KubeconfigSecretRef.Name == "" {
		return fmt.Errorf("cluster %s: VirtualNode %s has no spec.kubeconfigSecretRef: set it to the Secret of the peering, name: %s", p.consumer.Name, key, identity.SecretName(p.provider.ID()))
	}
	if err := p.consumer.RequireRights(ctx, nodeRights); err != nil || o.DryRun {
		return err
	}
	p.Report("%s: creating the ServiceAccount and the roles of virtual node %s, which was not created by refractctl and stays as it is", p.consumer.ID(), vn.Name)
	pullSecrets, err := p.findPullSecrets(ctx)
	if err != nil {
		return err
	}
	objects := nodeObjects{p, vn.Name, vn.Spec.KubeconfigSecretRef.Name}
	desired := append(objects.all(), p.copiedPullSecrets(pullSecrets)...)
	if objects.secretName != identity.SecretName(p.provider.ID()) {
		roles := p.consumer.Manager().Provider(vn.Namespace, objects.secretName)
		desired = append(desired, tenant.OwnRoles(p.consumer.Installation.RolePrefix, map[string]string{wire.VirtualNodeLabel: vn.Name}, roles)...)
	}
	if err := cluster.NewWriter(p.consumer).Apply(ctx, append(desired, objects.owned(vn, nil)...)...); err != nil || !ptr.Deref(vn.Spec.CreateNode, true) {
		return err
	}
	return p.awaitReady(ctx, vn.Name)
}

// isNodeDescribed reports whether any flag sets a property of the virtual node.
func (o *Options) isNodeDescribed() bool {
	n := &o.Node
	return len(o.Resources) > 0 || len(n.Labels) > 0 || len(n.NodeSelector) > 0 || n.RuntimeClass != "" ||
		len(n.StorageClasses) > 0 || len(n.IngressClasses) > 0 || len(n.LoadBalancerClasses) > 0 || o.AcceptedLabels != nil
}
