// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenant manages the objects that a provider has for one of its consumers: its account, permissions, Quota,
// limits, the keys of its certificates, and its remote namespaces. Drain revokes the consumer's access, and Activate
// restores it.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// Tenant is a consumer on its provider. Only the consumer's ID is needed; the consumer need not be accessible.
type Tenant struct {
	Provider *cluster.Side
	// Consumer is the ID of the consumer. It is also the consumer's user name.
	Consumer string
}

// Namespace returns the name of the tenant namespace.
func (t Tenant) Namespace() string { return wire.TenantNamespace(t.Consumer) }

// NamespaceObject returns the tenant namespace as an object that has only a name, for use in requests.
func (t Tenant) NamespaceObject() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: cluster.Meta("", t.Namespace(), nil)}
}

// Account returns the ServiceAccount of the consumer.
func (t Tenant) Account() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: cluster.Meta(t.Namespace(), wire.ConsumerServiceAccount, map[string]string{wire.RemoteClusterIDLabel: t.Consumer}),
		AutomountServiceAccountToken: ptr.To(false)}
}

// Access returns the consumer's ServiceAccount and its permissions.
func (t Tenant) Access() []client.Object {
	prefix := t.Provider.Installation.RolePrefix
	access := rbac.Peer(prefix, t.Consumer)
	return append([]client.Object{t.Account()}, OwnRoles(prefix, nil, append(access.Objects(), access.TenantNamespace(t.Namespace())))...)
}

// Quota returns the Quota of the consumer.
func (t Tenant) Quota(resources corev1.ResourceList) *offloading.Quota {
	return &offloading.Quota{ObjectMeta: cluster.Meta(t.Namespace(), t.Consumer, nil),
		Spec: offloading.QuotaSpec{User: t.Consumer, LimitsEnforcement: offloading.NoLimitsEnforcement, Resources: resources}}
}

// bindings returns the bindings of the consumer. They include the binding for certificate renewals if the tenant
// namespace records keys of the consumer's certificates.
func (t Tenant) bindings(namespace client.Object) []client.Object {
	all := t.Access()
	if namespace.GetAnnotations()[wire.ConsumerKeysAnnotation] != "" {
		all = append(all, t.renewalAccess()...)
	}
	return slices.DeleteFunc(all, func(object client.Object) bool {
		switch object.(type) {
		case *rbacv1.RoleBinding, *rbacv1.ClusterRoleBinding:
			return false
		}
		return true
	})
}

// SharedRoles returns the names of the chart's ClusterRoles to which the bindings of a peering refer.
func SharedRoles(prefix string) []string {
	var names []string
	for _, role := range []rbac.Role{rbac.VirtualKubeletLocal(), rbac.VirtualKubeletExtended(), rbac.VirtualKubeletRemote(), rbac.VirtualKubeletRemoteClusterwide(), rbac.RemoteControlPlane()} {
		names = append(names, role.Named(prefix))
	}
	return names
}

// OwnRoles returns the objects that the chart does not create, with the labels of refractctl.
func OwnRoles(prefix string, labels map[string]string, objects []rbac.Object) []client.Object {
	shared := SharedRoles(prefix)
	var own []client.Object
	for _, object := range objects {
		if _, is := object.(*rbacv1.ClusterRole); is && slices.Contains(shared, object.GetName()) {
			continue
		}
		object.SetLabels(cluster.Meta("", "", labels).Labels)
		own = append(own, object)
	}
	return own
}

// Limits contains limits of one consumer, by the name of the setting. A nil value removes the limit, so that the
// provider's default applies. Limits that are not in the map are not changed.
type Limits map[string]*string

// CheckLimits returns an error if a limit does not exist or has an invalid value, if the provider runs Liqo, or if the
// user has only an invitation.
func (t Tenant) CheckLimits(limits Limits) error {
	switch {
	case len(limits) == 0:
		return nil
	case t.Provider.IsInvited():
		return errors.New("--tenant-limit cannot be set with an invitation: the administrator of the provider sets limits with refractctl generate peering-user")
	case t.Provider.RunsLiqo:
		return fmt.Errorf("--tenant-limit cannot be set: cluster %s runs Liqo, which has no such limits", t.Provider.Name)
	}
	for name, value := range limits {
		setting, err := tenantlimits.Lookup(name)
		if err == nil && value != nil {
			err = setting.Check(*value)
		}
		if err != nil {
			return fmt.Errorf("--tenant-limit: %w", err)
		}
	}
	return nil
}

// SetLimits sets the limits in annotations of the tenant namespace.
func (t Tenant) SetLimits(ctx context.Context, limits Limits) error {
	if len(limits) == 0 {
		return nil
	}
	annotations := map[string]any{}
	for name, value := range limits {
		annotations[tenantlimits.AnnotationPrefix+name] = value
	}
	return t.Provider.AnnotateAll(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.Namespace()}}, annotations)
}

// Maps returns the NamespaceMaps of the consumer.
func (t Tenant) Maps(ctx context.Context) ([]offloading.NamespaceMap, error) {
	all := &offloading.NamespaceMapList{}
	if err := t.Provider.Client.List(ctx, all, client.InNamespace(t.Namespace()), client.MatchingLabels{wire.ReplicatedLabel: "true"}); err != nil {
		return nil, fmt.Errorf("cluster %s: listing NamespaceMaps in namespace %s, %w", t.Provider.Name, t.Namespace(), err)
	}
	return all.Items, nil
}

// RemoteNamespaces returns the sorted names of the consumer's remote namespaces.
func (t Tenant) RemoteNamespaces(ctx context.Context) (names []string, err error) {
	maps, err := t.Maps(ctx)
	if err != nil {
		return nil, err
	}
	for i := range maps {
		for _, status := range maps[i].Status.CurrentMapping {
			names = append(names, status.RemoteNamespace)
		}
	}
	slices.Sort(names)
	return names, nil
}
