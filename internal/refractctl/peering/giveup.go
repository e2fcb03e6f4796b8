// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// GiveUp ends a peering with a provider that is lost permanently. It does not wait for the provider, and removes
// nothing from it. The returned Removal is not nil if the removal has begun, even if there is an error.
func (o *Options) GiveUp(ctx context.Context) (*Removal, error) {
	removal, err := o.giveUp(ctx)
	return removal, progress.Ended(ctx, err)
}

func (o *Options) giveUp(ctx context.Context) (*Removal, error) {
	p, err := o.inspectConsumer(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := p.findNodes(ctx)
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		if err := p.consumer.RequirePeer(ctx, p.provider.ID()); err != nil {
			return nil, err
		}
	}
	l := p.beginRemoval(o)
	l.atProvider.RecordLeft(corev1.SchemeGroupVersion.WithKind("Namespace"), "", p.tenant.Namespace())
	if err := l.atConsumer.Change(func() error { return l.abandonProvider(ctx, len(nodes) > 0) }); err != nil {
		return l.removal(), err
	}
	last, err := l.removeNodes(ctx, cmp.Or(o.VirtualNode, p.provider.ID()), nodes)
	if err != nil {
		return l.removal(), err
	}
	finish, err := l.leaveConsumer(ctx, last)
	if err != nil {
		return l.removal(), err
	}
	err = l.end(ctx, finish)
	return l.removal(), err
}

// inspectConsumer inspects only the consumer. Of the provider, only the ID is known.
func (o *Options) inspectConsumer(ctx context.Context) (*pair, error) {
	consumer, err := o.Consumer.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	provider, err := o.Provider.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	return newPair(consumer, provider, o.Progress), nil
}

// abandonProvider declares the provider permanently lost. If there are no virtual nodes, this is not necessary, so
// errors are ignored.
func (l *leaving) abandonProvider(ctx context.Context, hasNodes bool) error {
	l.Report("%s: giving up %s: what it has of this cluster stays there", l.consumer.ID(), l.provider.ID())
	if err := AbandonPeer(ctx, l.consumer.Client, l.provider.ID()); err != nil && hasNodes {
		return err
	}
	return nil
}

// AbandonPeer declares a peer permanently lost, so that controllers no longer wait for it.
func AbandonPeer(ctx context.Context, c client.Client, peer string) error {
	found, err := findForeignCluster(ctx, c, peer)
	if err != nil {
		return err
	}
	if found == nil {
		return fmt.Errorf("there is no ForeignCluster of cluster %s, which would be marked as abandoned: check that the controller manager runs", peer)
	}
	return markUnreachable(ctx, c, found, `"true"`)
}

// reclaimPeer reverts AbandonPeer for a peer that is joined again, so that controllers wait for it again.
func reclaimPeer(ctx context.Context, c *cluster.Cluster, peer string) error {
	found, err := findForeignCluster(ctx, c.Client, peer)
	if err == nil && found != nil && found.Annotations[wire.PermanentlyUnreachableAnnotation] != "" {
		err = markUnreachable(ctx, c.Client, found, "null")
	}
	if err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return nil
}

// markUnreachable sets the annotation that declares a peer permanently lost. The value null removes the annotation.
func markUnreachable(ctx context.Context, c client.Client, found *core.ForeignCluster, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, wire.PermanentlyUnreachableAnnotation, value)
	if err := c.Patch(ctx, found, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("annotating ForeignCluster %s, %w", found.Name, err)
	}
	return nil
}

// findForeignCluster returns the ForeignCluster of a peer, or nil if it does not exist.
func findForeignCluster(ctx context.Context, c client.Client, peer string) (*core.ForeignCluster, error) {
	all := &core.ForeignClusterList{}
	if err := c.List(ctx, all); err != nil {
		return nil, fmt.Errorf("listing ForeignClusters, %w", err)
	}
	for i := range all.Items {
		if string(all.Items[i].Spec.ClusterID) == peer {
			return &all.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // as documented
}
