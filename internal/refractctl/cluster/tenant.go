// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
)

// CheckTenant reports whether the tenant namespace for a peer exists. It returns an error if the namespace cannot be
// used, for example because it belongs to another cluster with the same ID. The identity in this namespace would give
// the peer access to the other cluster's namespaces.
func (s *Side) CheckTenant(ctx context.Context, peer *Side) (exists bool, err error) {
	name, found := wire.TenantNamespace(peer.ID()), &corev1.Namespace{}
	err = s.Client.Get(ctx, client.ObjectKey{Name: name}, found)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("cluster %s: getting namespace %s, %w", s.Name, name, err)
	case found.DeletionTimestamp != nil:
		return true, fmt.Errorf("cluster %s: namespace %s is being deleted: run the command again when it is gone", s.Name, name)
	case found.Labels[wire.TenantNamespaceLabel] != "true" || found.Labels[wire.RemoteClusterIDLabel] != peer.ID():
		return true, fmt.Errorf("cluster %s: namespace %s exists without the labels %s=true and %s=%s, so it is not the tenant namespace: add them if it should be, or delete it",
			s.Name, name, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel, peer.ID())
	}
	return true, s.checkOwner(found, peer)
}

// CheckTenantOwner returns an error if the tenant namespace for a peer belongs to another cluster with the same ID.
func (s *Side) CheckTenantOwner(ctx context.Context, peer *Side) error {
	tenant, _, err := s.Find(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wire.TenantNamespace(peer.ID())}})
	if err != nil || tenant == nil {
		return err
	}
	return s.checkOwner(tenant, peer)
}

func (s *Side) checkOwner(tenant client.Object, peer *Side) error {
	uid := tenant.GetAnnotations()[wire.ClusterUIDAnnotation]
	if uid == "" || peer.UID == "" || uid == peer.UID {
		return nil
	}
	return fmt.Errorf("cluster %s: namespace %s is the tenant namespace of a different cluster with the id %q: install Refract in %s with another --cluster-id, or unpeer the other cluster first; if %s is that cluster, recreated, remove the annotation %s",
		s.Name, tenant.GetName(), peer.ID(), peer.Name, peer.Name, wire.ClusterUIDAnnotation)
}

// CreateTenant creates the tenant namespace for a peer if it does not exist.
func (w *Writer) CreateTenant(ctx context.Context, peer *Side) error {
	exists, err := w.CheckTenant(ctx, peer)
	if err != nil {
		return err
	}
	if exists {
		return w.recordUID(ctx, peer)
	}
	object := Meta("", wire.TenantNamespace(peer.ID()), map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: peer.ID()})
	if peer.UID != "" {
		object.Annotations = map[string]string{wire.ClusterUIDAnnotation: peer.UID}
	}
	return w.Apply(ctx, &corev1.Namespace{ObjectMeta: object})
}

// recordUID records the UID of the peer on its tenant namespace. If the namespace was created for an invitation, the
// UID was not known at that time.
func (w *Writer) recordUID(ctx context.Context, peer *Side) error {
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wire.TenantNamespace(peer.ID())}}
	found, _, err := w.Find(ctx, tenant)
	if err != nil || found == nil || !IsOurs(found) || peer.UID == "" || found.Annotations[wire.ClusterUIDAnnotation] != "" {
		return err
	}
	return w.Annotate(ctx, found, wire.ClusterUIDAnnotation, peer.UID)
}
