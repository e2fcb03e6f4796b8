// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/release"
)

// Cluster is one side of a peering.
type Cluster struct {
	// Name by which the user knows it: a context, or a server.
	Name string
	// Config, Client and Clientset lead to the same cluster, with the rights of an administrator.
	Config    *rest.Config
	Client    client.Client
	Clientset kubernetes.Interface

	installation *release.Installation
	uid          string
}

// ID of the cluster among its peers.
func (c *Cluster) ID() string { return c.installation.ClusterID }

// inspect finds out what is installed.
func (c *Cluster) inspect(ctx context.Context) (err error) {
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
	system := &corev1.Namespace{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: "kube-system"}, system); err != nil {
		return fmt.Errorf("cluster %s: getting namespace kube-system, %w", c.Name, err)
	}
	c.uid = string(system.UID)
	return nil
}

// manager names the controller manager.
func (c *Cluster) manager() rbac.Manager {
	return rbac.Manager{Prefix: c.installation.RolePrefix, Namespace: c.installation.Namespace,
		Subject: rbac.ServiceAccount(c.installation.Namespace, c.installation.ServiceAccount)}
}

// tenantNamespace creates the tenant namespace for a peer, or finds it.
func (c *Cluster) tenantNamespace(ctx context.Context, peer string) error {
	name := wire.TenantNamespace(peer)
	found := &corev1.Namespace{}
	err := c.Client.Get(ctx, client.ObjectKey{Name: name}, found)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("cluster %s: getting namespace %s, %w", c.Name, name, err)
	case found.DeletionTimestamp != nil:
		return fmt.Errorf("cluster %s: namespace %s is being deleted: run the command again when it is gone", c.Name, name)
	case found.Labels[wire.TenantNamespaceLabel] != "true" || found.Labels[wire.RemoteClusterIDLabel] != peer:
		return fmt.Errorf("cluster %s: namespace %s exists without the labels %s=true and %s=%s, so it is not the tenant namespace: add them if it should be, or delete it",
			c.Name, name, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel, peer)
	default:
		return nil
	}
	return c.apply(ctx, &corev1.Namespace{ObjectMeta: meta("", name, map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: peer})})
}
