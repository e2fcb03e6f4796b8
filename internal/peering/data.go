// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/remotedata"
)

// checkData refuses, before anything is changed, to remove virtual nodes if the provider stores data of their
// volumes. Without virtual nodes the remote namespaces are deleted.
func (o *Options) checkData(ctx context.Context, nodes []offloading.VirtualNode) error {
	if len(nodes) == 0 {
		return nil
	}
	volumes, err := remotedata.List(ctx, o.Consumer.Client)
	if apierrors.IsForbidden(err) {
		o.say("%s: warning: you may not list PersistentVolumes. The controllers keep remote namespaces with data, and the VirtualNode then has the condition %s", o.Consumer.ID(), remotedata.HeldReason)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cluster %s: finding the volumes with data on %s, %w", o.Consumer.Name, o.Provider.ID(), err)
	}
	volumes = volumes.On(o.Provider.ID())
	if held := volumes.Holding(o.DeleteData); len(held) > 0 {
		return fmt.Errorf("cluster %s has the data of the volumes %s, which would be deleted, so nothing was changed: %s",
			o.Provider.Name, held, held.Remedy("run the command again with --delete-data to delete it"))
	}
	if len(volumes) > 0 && o.DeleteData {
		o.say("%s: warning: the data of the volumes %s is deleted", o.Provider.ID(), volumes)
	}
	return nil
}

// confirmDeletion allows the controllers to delete the data on the provider together with a virtual node.
func (o *Options) confirmDeletion(ctx context.Context, vn *offloading.VirtualNode) error {
	if !o.DeleteData || o.DryRun || remotedata.IsConfirmed(vn) {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, wire.DeleteDataAnnotation)
	if err := o.Consumer.Client.Patch(ctx, vn, client.RawPatch(types.MergePatchType, []byte(patch))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cluster %s: annotating VirtualNode %s, %w", o.Consumer.Name, client.ObjectKeyFromObject(vn), err)
	}
	return nil
}
