// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/rbac"
)

// Withdraw deletes the objects of a provider for a consumer. Only the ID of the consumer has to be known. Withdraw
// fails while the consumer uses the objects, if there are no objects, and if the consumer still has access afterwards
// through objects that others have created.
func (o *Options) Withdraw(ctx context.Context) error { return progress.Ended(ctx, o.withdraw(ctx)) }

func (o *Options) withdraw(ctx context.Context) error {
	if err := o.Provider.inspect(ctx); err != nil {
		return err
	}
	consumer := o.Consumer.ID()
	o.beginRemoval()
	access, err := o.Provider.accessOf(ctx, consumer)
	// Without the permission to list bindings, the objects with known names are removed first.
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	known, err := o.Provider.knows(ctx, consumer)
	if err != nil {
		return err
	}
	if !known && len(access) == 0 {
		return o.Provider.notPeered(ctx, consumer)
	}
	if err := o.unused(ctx); err != nil {
		return err
	}
	end, err := o.leaveProvider(ctx)
	if err != nil {
		return err
	}
	if err := o.end(ctx, end); err != nil {
		return err
	}
	for _, binding := range access {
		if IsOurs(binding) { // created by a release with another name
			if err := o.Provider.remove(ctx, binding); err != nil {
				return err
			}
		}
	}
	if access, err = o.Provider.accessOf(ctx, consumer); err != nil {
		return err
	}
	if err := o.sayLeft(ctx, access); err != nil {
		return err
	}
	if len(o.Provider.removed) == 0 { // for example if the peer is a provider
		return fmt.Errorf("cluster %s: %s has no access to this cluster, and refractctl has created nothing for it: nothing was removed", o.Provider.Name, consumer)
	}
	return nil
}

// sayLeft lists the objects that a removal has left on the provider, and who can remove them. It fails if they give
// the consumer access.
func (o *Options) sayLeft(ctx context.Context, access []*metav1.PartialObjectMetadata) error {
	c := o.Provider
	for _, binding := range access {
		if !slices.ContainsFunc(c.left, func(left *metav1.PartialObjectMetadata) bool { return describe(left) == describe(binding) }) {
			c.noteLeft(binding.GroupVersionKind(), binding.Namespace, binding.Name)
		}
	}
	for _, left := range c.left {
		found, _, err := c.find(ctx, left)
		if err != nil {
			return err
		}
		if found != nil {
			o.say("%s: warning: left %s: %s", c.ID(), describe(found), remover(found))
		}
	}
	if len(access) == 0 {
		return nil
	}
	names, remedies := sets.New[string](), sets.New[string]()
	for _, binding := range access {
		names.Insert(describe(binding))
		remedies.Insert(remover(binding))
	}
	return fmt.Errorf("cluster %s: %s still has access, by %s: %s, and run the command again",
		c.Name, o.Consumer.ID(), strings.Join(sets.List(names), " and "), strings.Join(sets.List(remedies), "; "))
}

// describe returns kind, namespace and name of an object.
func describe(object *metav1.PartialObjectMetadata) string {
	return object.Kind + " " + strings.TrimPrefix(client.ObjectKeyFromObject(object).String(), "/")
}

// The following annotations are set on objects of a Helm release. Helm does not delete an object with the policy
// keep.
const (
	helmPolicy           = "helm.sh/resource-policy"
	helmRelease          = "meta.helm.sh/release-name"
	helmReleaseNamespace = "meta.helm.sh/release-namespace"
)

// remover returns the remedy for an object that refractctl leaves.
func remover(object *metav1.PartialObjectMetadata) string {
	owner, release := metav1.GetControllerOf(object), object.Annotations[helmRelease]
	switch {
	case owner != nil:
		return fmt.Sprintf("delete its owner, %s %s", owner.Kind, owner.Name)
	case object.Annotations[helmPolicy] == "keep":
		return "Helm keeps it: delete it with kubectl when nothing in it is needed"
	case release != "":
		return fmt.Sprintf("remove the consumer from the values of Helm release %s in namespace %s (consumers)", release, object.Annotations[helmReleaseNamespace])
	case IsOurs(object):
		return "it goes with the rest of the peering"
	}
	return "delete it with kubectl, refractctl has not created it"
}

// accessOf returns the bindings of a consumer: the bindings that have its user, its group, or its ServiceAccount as a
// subject.
func (c *Cluster) accessOf(ctx context.Context, consumer string) (access []*metav1.PartialObjectMetadata, err error) {
	tenant := wire.TenantNamespace(consumer)
	subjects := []rbacv1.Subject{rbac.User(consumer), rbac.Group(consumer), rbac.ServiceAccount(tenant, wire.ConsumerServiceAccount), rbac.Group(serviceaccount.MakeNamespaceGroupName(tenant))}
	note := func(kind string, object metav1.ObjectMeta, bound []rbacv1.Subject) {
		binds := slices.ContainsFunc(bound, func(subject rbacv1.Subject) bool { return slices.Contains(subjects, subject) })
		if binds && object.DeletionTimestamp == nil && !c.isRemoved(object.UID) {
			found := &metav1.PartialObjectMetadata{ObjectMeta: object}
			found.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind(kind))
			access = append(access, found)
		}
	}
	roles, clusterRoles := &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{}
	if err := c.Client.List(ctx, roles); err != nil {
		return nil, fmt.Errorf("cluster %s: listing RoleBindings, by which the consumer may have access still, %w", c.Name, err)
	}
	if err := c.Client.List(ctx, clusterRoles); err != nil {
		return nil, fmt.Errorf("cluster %s: listing ClusterRoleBindings, by which the consumer may have access still, %w", c.Name, err)
	}
	for i := range roles.Items {
		note("RoleBinding", roles.Items[i].ObjectMeta, roles.Items[i].Subjects)
	}
	for i := range clusterRoles.Items {
		note("ClusterRoleBinding", clusterRoles.Items[i].ObjectMeta, clusterRoles.Items[i].Subjects)
	}
	return access, nil
}

// knows reports whether a cluster has any object of a peer.
func (c *Cluster) knows(ctx context.Context, peer string) (bool, error) {
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: meta("", wire.TenantNamespace(peer), nil)}, &core.ForeignCluster{ObjectMeta: meta("", peer, nil)}} {
		if found, _, err := c.find(ctx, object); err != nil || found != nil {
			return found != nil, err
		}
	}
	return false, nil
}

// notPeered returns the error for a peer without objects in a cluster. The error lists the existing peers.
func (c *Cluster) notPeered(ctx context.Context, peer string) error {
	namespaces, clusters, peers := &corev1.NamespaceList{}, &core.ForeignClusterList{}, sets.New[string]()
	if err := c.Client.List(ctx, namespaces, client.MatchingLabels{wire.TenantNamespaceLabel: "true"}, client.HasLabels{wire.RemoteClusterIDLabel}); err != nil {
		return fmt.Errorf("cluster %s: listing tenant namespaces, %w", c.Name, err)
	}
	if err := c.Client.List(ctx, clusters); err != nil {
		return fmt.Errorf("cluster %s: listing ForeignClusters, %w", c.Name, err)
	}
	for i := range namespaces.Items {
		peers.Insert(namespaces.Items[i].Labels[wire.RemoteClusterIDLabel])
	}
	for i := range clusters.Items {
		peers.Insert(string(clusters.Items[i].Spec.ClusterID))
	}
	return fmt.Errorf("cluster %s: there is no peering with %s: its peers are %s", c.Name, peer, cmp.Or(strings.Join(sets.List(peers), ", "), "none"))
}
