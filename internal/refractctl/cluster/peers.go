// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// RequirePeer returns an error if the cluster has no objects of the peer. The error lists the existing peers.
func (s *Side) RequirePeer(ctx context.Context, peer string) error {
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: Meta("", wire.TenantNamespace(peer), nil)}, &core.ForeignCluster{ObjectMeta: Meta("", peer, nil)}} {
		if found, _, err := s.Find(ctx, object); err != nil || found != nil {
			return err
		}
	}
	return s.NotPeered(ctx, peer)
}

// NotPeered returns the error for a cluster that has no objects of the peer. It lists the existing peers.
func (s *Side) NotPeered(ctx context.Context, peer string) error {
	namespaces, clusters, peers := &corev1.NamespaceList{}, &core.ForeignClusterList{}, sets.New[string]()
	if err := s.Client.List(ctx, namespaces, client.MatchingLabels{wire.TenantNamespaceLabel: "true"}, client.HasLabels{wire.RemoteClusterIDLabel}); err != nil {
		return fmt.Errorf("cluster %s: listing tenant namespaces, %w", s.Name, err)
	}
	if err := s.Client.List(ctx, clusters); err != nil {
		return fmt.Errorf("cluster %s: listing ForeignClusters, %w", s.Name, err)
	}
	for i := range namespaces.Items {
		peers.Insert(namespaces.Items[i].Labels[wire.RemoteClusterIDLabel])
	}
	for i := range clusters.Items {
		peers.Insert(string(clusters.Items[i].Spec.ClusterID))
	}
	return fmt.Errorf("cluster %s: there is no peering with %s: its peers are %s", s.Name, peer, cmp.Or(strings.Join(sets.List(peers), ", "), "none"))
}
