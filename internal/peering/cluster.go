// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/release"
)

// Cluster is one side of a peering.
type Cluster struct {
	// Name is the user's name for the cluster: a context, or a server.
	Name string
	// Config, Client and Clientset access the same cluster, with the permissions of an administrator.
	Config    *rest.Config
	Client    client.Client
	Clientset kubernetes.Interface

	// invitation describes a provider that is accessed with an invitation. It is nil for access as an administrator.
	invitation   *Invitation
	installation *release.Installation
	// liqo is set if the cluster runs Liqo. Only the ID of the installation is known then.
	liqo bool
	uid  string
	// created lists the objects that this run has created, in order of creation.
	created []*metav1.PartialObjectMetadata
	// removed and left list the objects that the end of the peering has found in this cluster. With dryRun nothing is
	// deleted.
	removed, left []*metav1.PartialObjectMetadata
	dryRun        bool
}

// ID returns the ID of the cluster among its peers.
func (c *Cluster) ID() string { return c.installation.ClusterID }

// Accept sets the invitation that gives access to the cluster. With nil the cluster is accessed with the permissions
// of an administrator.
func (c *Cluster) Accept(invitation *Invitation) { c.invitation = invitation }

// IsInvited reports whether the cluster is accessed with an invitation.
func (c *Cluster) IsInvited() bool { return c.invitation != nil }

// inspect reads which version is installed in the cluster, and its settings.
func (c *Cluster) inspect(ctx context.Context) (err error) {
	if c.invitation != nil {
		return c.accept(ctx)
	}
	c.installation, err = release.Find(ctx, c.Client)
	if errors.Is(err, release.ErrNotInstalled) {
		return fmt.Errorf("cluster %s: %w, install it with refractctl install", c.Name, err)
	}
	if err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	if c.installation.ClusterID == "" {
		return fmt.Errorf("cluster %s: the controller manager of release %s has no --cluster-id: upgrade the release", c.Name, c.installation.Name)
	}
	return c.identify(ctx)
}

// identify reads the UID that distinguishes the cluster from another one with the same ID.
func (c *Cluster) identify(ctx context.Context) error {
	system := &corev1.Namespace{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: "kube-system"}, system); err != nil {
		return fmt.Errorf("cluster %s: getting namespace kube-system, %w", c.Name, err)
	}
	c.uid = string(system.UID)
	return nil
}

// manager returns the name and the namespace of the controller manager.
func (c *Cluster) manager() rbac.Manager {
	return rbac.Manager{Prefix: c.installation.RolePrefix, Namespace: c.installation.Namespace,
		Subject: rbac.ServiceAccount(c.installation.Namespace, c.installation.ServiceAccount)}
}

// tenant reports whether the tenant namespace for a peer exists. It fails if the namespace cannot be used, for
// example because it belongs to another cluster that claims the same ID: the identity in it would give access to the
// namespaces of that cluster.
func (c *Cluster) tenant(ctx context.Context, peer *Cluster) (exists bool, err error) {
	name, found := wire.TenantNamespace(peer.ID()), &corev1.Namespace{}
	err = c.Client.Get(ctx, client.ObjectKey{Name: name}, found)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("cluster %s: getting namespace %s, %w", c.Name, name, err)
	case found.DeletionTimestamp != nil:
		return true, fmt.Errorf("cluster %s: namespace %s is being deleted: run the command again when it is gone", c.Name, name)
	case found.Labels[wire.TenantNamespaceLabel] != "true" || found.Labels[wire.RemoteClusterIDLabel] != peer.ID():
		return true, fmt.Errorf("cluster %s: namespace %s exists without the labels %s=true and %s=%s, so it is not the tenant namespace: add them if it should be, or delete it",
			c.Name, name, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel, peer.ID())
	}
	return true, c.isFor(found, peer)
}

// isFor fails if the tenant namespace belongs to another cluster that claims the same ID.
func (c *Cluster) isFor(tenant client.Object, peer *Cluster) error {
	uid := tenant.GetAnnotations()[wire.ClusterUIDAnnotation]
	if uid == "" || peer.uid == "" || uid == peer.uid {
		return nil
	}
	return fmt.Errorf("cluster %s: namespace %s is the tenant namespace of a different cluster with the id %q: install Refract in %s with another --cluster-id, or unpeer the other cluster first; if %s is that cluster, recreated, remove the annotation %s",
		c.Name, tenant.GetName(), peer.ID(), peer.Name, peer.Name, wire.ClusterUIDAnnotation)
}

// makeTenant creates the tenant namespace for a peer if it does not exist.
func (c *Cluster) makeTenant(ctx context.Context, peer *Cluster) error {
	exists, err := c.tenant(ctx, peer)
	if err != nil {
		return err
	}
	if exists {
		return c.noteUID(ctx, peer)
	}
	object := meta("", wire.TenantNamespace(peer.ID()), map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: peer.ID()})
	if peer.uid != "" {
		object.Annotations = map[string]string{wire.ClusterUIDAnnotation: peer.uid}
	}
	return c.apply(ctx, &corev1.Namespace{ObjectMeta: object})
}

// noteUID records the UID of the peer on its tenant namespace. The UID is not known yet when a tenant namespace is
// created for an invitation.
func (c *Cluster) noteUID(ctx context.Context, peer *Cluster) error {
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wire.TenantNamespace(peer.ID())}}
	found, _, err := c.find(ctx, tenant)
	if err != nil || found == nil || !IsOurs(found) || peer.uid == "" || found.Annotations[wire.ClusterUIDAnnotation] != "" {
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, wire.ClusterUIDAnnotation, peer.uid)
	if err := c.Client.Patch(ctx, tenant, client.RawPatch(types.MergePatchType, []byte(patch)), fieldOwner); err != nil {
		return fmt.Errorf("cluster %s: annotating namespace %s, %w", c.Name, tenant.Name, err)
	}
	return nil
}
