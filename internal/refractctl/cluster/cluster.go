// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster provides access to clusters for the commands that join two clusters.
//
// A Cluster is a cluster with the access that the user has specified. Inspect finds out what is installed in the
// cluster, and returns a Side. A Writer creates objects on a Side, and can remove them if the run fails. A Remover
// removes objects, or lists them in a dry run. Apart from Remover.RemoveAnyones and Remover.Delete, neither of them
// changes objects that refractctl has not created.
package cluster

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/internal/credentials"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/invitation"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// Cluster is a cluster that the user has specified for a command.
type Cluster struct {
	// Name is the user's name for the cluster: a context or a server.
	Name string
	// Config, Client and Clientset give access to the cluster with the permissions of the user. They are nil for a
	// cluster that cannot be accessed.
	Config    *rest.Config
	Client    client.Client
	Clientset kubernetes.Interface
	// Invitation is set if the cluster is a provider that is accessed with an invitation. It is nil if the user is an
	// administrator.
	Invitation *invitation.Invitation
	// KnownID is the ID of a cluster that cannot be accessed. It is empty for all other clusters.
	KnownID string
}

// Absent returns a Cluster that cannot be accessed. Only its ID is known.
func Absent(id string) (*Cluster, error) {
	if err := core.ClusterID(id).Validate(); err != nil {
		return nil, err
	}
	return &Cluster{Name: id, KnownID: id}, nil
}

// IsAbsent reports whether the cluster cannot be accessed.
func (c *Cluster) IsAbsent() bool { return c.Client == nil }

// IsInvited reports whether the cluster is accessed with an invitation.
func (c *Cluster) IsInvited() bool { return c.Invitation != nil }

// Side describes one of the two clusters of a command: its access, its installation, its UID, and whether it runs Liqo.
// Inspect returns it. It is immutable.
type Side struct {
	*Cluster
	// Installation describes the release. It contains only the ID if the cluster cannot be accessed, and only the ID
	// and the namespace if the cluster runs Liqo.
	Installation *release.Installation
	// UID distinguishes the cluster from other clusters with the same ID. It is empty if the cluster cannot be
	// accessed.
	UID string
	// RunsLiqo is true if the cluster runs Liqo.
	RunsLiqo bool
}

// ID returns the ID that peers use for the cluster.
func (s *Side) ID() string { return s.Installation.ClusterID }

// Manager returns the controller manager of the installation, for which package rbac returns roles and bindings.
func (s *Side) Manager() rbac.Manager {
	return rbac.Manager{Prefix: s.Installation.RolePrefix, Namespace: s.Installation.Namespace,
		Subject: rbac.ServiceAccount(s.Installation.Namespace, s.Installation.ServiceAccount)}
}

// Inspect finds out which version is installed, and its settings. For a cluster that cannot be accessed, it returns
// only the known ID.
func (c *Cluster) Inspect(ctx context.Context) (*Side, error) {
	if c.IsAbsent() {
		return &Side{Cluster: c, Installation: &release.Installation{ClusterID: c.KnownID}}, nil
	}
	if c.IsInvited() {
		return c.useInvitation(ctx)
	}
	installation, err := release.Find(ctx, c.Client)
	if errors.Is(err, release.ErrNotInstalled) {
		return nil, fmt.Errorf("cluster %s: %w, install it with refractctl install", c.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	if installation.ClusterID == "" {
		return nil, fmt.Errorf("cluster %s: the controller manager of release %s has no --cluster-id: upgrade the release", c.Name, installation.Name)
	}
	return c.identify(ctx, &Side{Cluster: c, Installation: installation})
}

// useInvitation returns the description of the provider from its invitation, because a consumer may not read it from
// the provider.
func (c *Cluster) useInvitation(ctx context.Context) (*Side, error) {
	_, err := c.Clientset.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if apierrors.IsUnauthorized(err) {
		return nil, &invitation.EndedError{Cluster: c.Name, Consumer: c.Invitation.Consumer, Expiry: credentials.ValidityOf(c.Config).Until}
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %s: using the invitation, %w", c.Name, err)
	}
	return &Side{Cluster: c, UID: c.Invitation.ProviderUID,
		Installation: &release.Installation{ClusterID: c.Invitation.Provider, Version: c.Invitation.Version}}, nil
}

// identify reads the UID of the cluster and sets it in side.
func (c *Cluster) identify(ctx context.Context, side *Side) (*Side, error) {
	system := &corev1.Namespace{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return nil, fmt.Errorf("cluster %s: getting namespace %s, %w", c.Name, metav1.NamespaceSystem, err)
	}
	side.UID = string(system.UID)
	return side, nil
}

const (
	// LiqoIDName is the value of the name label on the ConfigMap with the cluster's ID. Liqo and the chart create this
	// ConfigMap. LiqoIDKey is the key of the ID in it.
	LiqoIDName = "clusterid-configmap"
	LiqoIDKey  = "CLUSTER_ID"
)

// InspectAsProvider finds out which version of Refract or Liqo is installed.
func (c *Cluster) InspectAsProvider(ctx context.Context) (*Side, error) {
	side, err := c.Inspect(ctx)
	if !errors.Is(err, release.ErrNotInstalled) {
		return side, err
	}
	ids := &corev1.ConfigMapList{}
	if listErr := c.Client.List(ctx, ids, client.MatchingLabels{"app.kubernetes.io/name": LiqoIDName}); listErr != nil {
		return nil, fmt.Errorf("cluster %s: looking for Liqo, %w", c.Name, listErr)
	}
	if len(ids.Items) == 0 || ids.Items[0].Data[LiqoIDKey] == "" {
		return nil, err
	}
	if err := c.requireTenants(ctx, ids.Items[0].Labels["app.kubernetes.io/version"]); err != nil {
		return nil, err
	}
	return c.identify(ctx, &Side{Cluster: c, RunsLiqo: true, Installation: &release.Installation{ClusterID: ids.Items[0].Data[LiqoIDKey], Namespace: ids.Items[0].Namespace}})
}

// oldestLiqo is the first version of Liqo that supports the resources that refractctl creates on a provider.
var oldestLiqo = version.MustParseGeneric("1.0.0")

// requireTenants returns an error if the provider's version of Liqo is too old, according to its version or CRDs.
func (c *Cluster) requireTenants(ctx context.Context, label string) error {
	found, err := version.ParseGeneric(label)
	if err == nil && found.LessThan(oldestLiqo) {
		return fmt.Errorf("cluster %s runs Liqo %s, which cannot be joined: upgrade it to %s or later (liqoctl install), or install Refract there", c.Name, label, oldestLiqo)
	}
	switch err := c.Client.List(ctx, &auth.TenantList{}, client.Limit(1)); {
	case apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return fmt.Errorf("cluster %s runs Liqo %s without Tenants (%s): enable its authentication module, or upgrade it to %s or later", c.Name, label, auth.GroupVersion, oldestLiqo)
	case err != nil:
		return fmt.Errorf("cluster %s: listing Tenants, %w", c.Name, err)
	}
	return nil
}
