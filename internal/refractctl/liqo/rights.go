// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package liqo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/accessreview"
	"github.com/refract-project/refract/internal/rbac"
)

const (
	// rolePrefix is the prefix of the roles that virtual kubelets get in addition to Liqo's role. No installation uses
	// this prefix, so the roles of an installation are never overwritten.
	rolePrefix = "refract-adopted"
	// formerRolePrefix is the prefix that earlier versions used. The chart uses it, too, if adoptLiqo is set.
	formerRolePrefix = "refract"
)

const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "refractctl-liqo"
)

// kubeletRights returns the roles and bindings of a virtual kubelet. Their names have the given prefix.
func kubeletRights(vn *offloading.VirtualNode, prefix string) []rbac.Object {
	secret := ""
	if vn.Spec.KubeconfigSecretRef != nil {
		secret = vn.Spec.KubeconfigSecretRef.Name
	}
	kubelet := rbac.Kubelet{Prefix: prefix, NodeName: vn.Name, TenantNamespace: vn.Namespace, KubeconfigSecret: secret, Subject: rbac.ServiceAccount(vn.Namespace, vn.Name)}
	objects := append(kubelet.Objects(), kubelet.Everywhere())
	for _, object := range objects {
		object.SetLabels(map[string]string{managedByLabel: managedBy})
	}
	return objects
}

// missingRights returns the permissions that a virtual kubelet lacks, according to the API server.
func (o *Options) missingRights(ctx context.Context, vn *offloading.VirtualNode) (missing []string, err error) {
	isAllowed := accessreview.ServiceAccount(o.Client, vn.Namespace, vn.Name)
	for _, object := range kubeletRights(vn, rolePrefix) {
		var rules []rbacv1.PolicyRule
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			rules = role.Rules
		case *rbacv1.Role:
			rules = role.Rules
		}
		for _, attributes := range rbac.Attributes(object.GetNamespace(), rules) {
			allowed, err := isAllowed(ctx, attributes)
			if err != nil {
				return nil, fmt.Errorf("asking for the rights of ServiceAccount %s, %w", client.ObjectKeyFromObject(vn), err)
			}
			text := strings.TrimSuffix(attributes.Verb+" "+attributes.Resource+"/"+attributes.Subresource, "/")
			if !allowed && !slices.Contains(missing, text) {
				missing = append(missing, text)
			}
		}
	}
	return missing, nil
}

// withdrawRights deletes the permissions that were granted to a virtual kubelet by this version or an earlier one.
// Roles that virtual kubelets share are deleted only if last is true.
func (o *Options) withdrawRights(ctx context.Context, vn *offloading.VirtualNode, last bool) error {
	for _, prefix := range []string{rolePrefix, formerRolePrefix} {
		shared := []string{rbac.VirtualKubeletLocal().Named(prefix), rbac.VirtualKubeletExtended().Named(prefix)}
		for _, object := range slices.Backward(kubeletRights(vn, prefix)) {
			isShared := slices.Contains(shared, object.GetName())
			if isShared && !last {
				continue
			}
			if err := o.withdrawOne(ctx, object, isShared); err != nil {
				return fmt.Errorf("deleting %T %s, %w", object, client.ObjectKeyFromObject(object), err)
			}
		}
	}
	return nil
}

// withdrawOne deletes an object that this command has created. A shared role is deleted only if no other binding refers
// to it, because earlier versions overwrote roles of the chart.
func (o *Options) withdrawOne(ctx context.Context, object client.Object, shared bool) error {
	found := object.DeepCopyObject().(client.Object)
	if err := o.Client.Get(ctx, client.ObjectKeyFromObject(object), found); err != nil {
		return client.IgnoreNotFound(err)
	}
	if found.GetLabels()[managedByLabel] != managedBy {
		return nil
	}
	if shared {
		if bound, err := o.boundByOthers(ctx, object.GetName()); err != nil || bound {
			return err
		}
	}
	return client.IgnoreNotFound(o.Client.Delete(ctx, found))
}

// boundByOthers reports whether a binding that was not created by this command refers to the ClusterRole.
func (o *Options) boundByOthers(ctx context.Context, role string) (bool, error) {
	clusterRoleBindings, roleBindings := &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}
	if err := o.Client.List(ctx, clusterRoleBindings); err != nil {
		return false, fmt.Errorf("listing ClusterRoleBindings, %w", err)
	}
	if err := o.Client.List(ctx, roleBindings); err != nil {
		return false, fmt.Errorf("listing RoleBindings, %w", err)
	}
	others := func(of metav1.ObjectMeta, to rbacv1.RoleRef) bool {
		return of.Labels[managedByLabel] != managedBy && to.Kind == "ClusterRole" && to.Name == role
	}
	return slices.ContainsFunc(clusterRoleBindings.Items, func(b rbacv1.ClusterRoleBinding) bool { return others(b.ObjectMeta, b.RoleRef) }) ||
		slices.ContainsFunc(roleBindings.Items, func(b rbacv1.RoleBinding) bool { return others(b.ObjectMeta, b.RoleRef) }), nil
}
