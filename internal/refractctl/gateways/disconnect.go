// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// Disconnect removes the gateway to a peer and the PublicKey of the peer from a cluster. Objects that refractctl has not created
// are recorded as left. Without the Configuration, which stays, the peer could get other ranges when it is connected again.
func Disconnect(ctx context.Context, remover *cluster.Remover, peer string) error {
	return removeAll(ctx, remover, peer, &api.PublicKeyList{}, &api.GatewayClientList{}, &api.GatewayServerList{})
}

// Forget removes all objects of the link to a peer from a cluster, and the Networks with the cluster's own ranges if refractctl has
// created them and no peer is left.
func Forget(ctx context.Context, remover *cluster.Remover, peer string) error {
	if err := Disconnect(ctx, remover, peer); err != nil {
		return err
	}
	if err := removeAll(ctx, remover, peer, &api.ConfigurationList{}); err != nil {
		return err
	}
	return removeDeclared(ctx, remover)
}

// removeAll removes the objects of the link of the given kinds.
func removeAll(ctx context.Context, remover *cluster.Remover, peer string, lists ...client.ObjectList) error {
	e := &end{Side: remover.Side, peer: peer}
	for _, list := range lists {
		if err := e.Client.List(ctx, list, client.InNamespace(e.namespace()), client.MatchingLabels(e.labels())); isNotServed(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("cluster %s: listing the objects of gateways in namespace %s, %w", e.Name, e.namespace(), err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			object, _ := item.(client.Object)
			return remover.Remove(ctx, object)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeDeclared removes the Networks with the ranges of the cluster if no Configuration is left that uses them.
func removeDeclared(ctx context.Context, remover *cluster.Remover) error {
	configurations, networks := &api.ConfigurationList{}, &ipam.NetworkList{}
	if err := remover.Client.List(ctx, configurations); isNotServed(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cluster %s: listing Configurations, %w", remover.Name, err)
	}
	for i := range configurations.Items {
		if !remover.HasRemoved(configurations.Items[i].UID) {
			return nil
		}
	}
	if err := remover.Client.List(ctx, networks, client.HasLabels{wire.NetworkTypeLabel}); err != nil {
		return fmt.Errorf("cluster %s: listing Networks, %w", remover.Name, err)
	}
	for i := range networks.Items {
		if !cluster.IsOurs(&networks.Items[i]) {
			continue
		}
		if err := remover.Remove(ctx, &networks.Items[i]); err != nil {
			return err
		}
	}
	return nil
}
