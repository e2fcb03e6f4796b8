// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// otherNode returns the VirtualNode of the provider with the given name that somebody else has created, for example
// with liqoctl or a GitOps tool. It returns nil if that VirtualNode does not exist.
func (o *Options) otherNode(ctx context.Context) (*offloading.VirtualNode, error) {
	vn := &offloading.VirtualNode{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(o.Provider.ID()), Name: o.VirtualNode}
	err := o.Consumer.Client.Get(ctx, key, vn)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cluster %s: getting VirtualNode %s, %w", o.Consumer.Name, key, err)
	case IsOurs(vn) || string(vn.Spec.ClusterID) != o.Provider.ID() || vn.DeletionTimestamp != nil:
		return nil, nil
	}
	return vn, nil
}

// admitNode creates the ServiceAccount and the permissions of the virtual kubelet of a VirtualNode that somebody else
// has created. They are deleted with the VirtualNode. Its own fields stay unchanged.
func (o *Options) admitNode(ctx context.Context, vn *offloading.VirtualNode) error {
	key := client.ObjectKeyFromObject(vn)
	if o.isNodeDescribed() {
		return fmt.Errorf("cluster %s: VirtualNode %s was not created by refractctl, which does not change it: change its fields where it comes from, and omit the flags for resources, classes, labels and selectors", o.Consumer.Name, key)
	}
	if vn.Spec.KubeconfigSecretRef == nil || vn.Spec.KubeconfigSecretRef.Name == "" {
		return fmt.Errorf("cluster %s: VirtualNode %s has no spec.kubeconfigSecretRef: set it to the Secret of the peering, name: %s", o.Consumer.Name, key, secretName(o.Provider.ID()))
	}
	o.otherSecret = vn.Spec.KubeconfigSecretRef.Name
	if err := o.Consumer.lacks(ctx, nodeRights); err != nil || o.DryRun {
		return err
	}
	o.say("%s: creating the ServiceAccount and the roles of virtual node %s, which was not created by refractctl and stays as it is", o.Consumer.ID(), vn.Name)
	if err := o.findPullSecrets(ctx); err != nil {
		return err
	}
	objects := append(o.atConsumer(), o.copiedPullSecrets()...)
	if o.otherSecret != secretName(o.Provider.ID()) {
		prefix := o.Consumer.installation.RolePrefix
		objects = append(objects, ownRoles(prefix, map[string]string{wire.VirtualNodeLabel: vn.Name}, o.Consumer.manager().Provider(vn.Namespace, o.otherSecret))...)
	}
	if err := o.Consumer.applyAll(ctx, append(objects, o.besides(vn)...)); err != nil || !ptr.Deref(vn.Spec.CreateNode, true) {
		return err
	}
	return o.awaitReady(ctx)
}

// isNodeDescribed reports whether flags set properties of the virtual node.
func (o *Options) isNodeDescribed() bool {
	n := &o.Node
	return len(o.Resources) > 0 || len(n.Labels) > 0 || len(n.NodeSelector) > 0 || n.RuntimeClass != "" ||
		len(n.StorageClasses) > 0 || len(n.IngressClasses) > 0 || len(n.LoadBalancerClasses) > 0 || o.AcceptedLabels != nil
}
