// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/rbac"
)

const (
	// accountCreatedReason is the reason of the Event about a ServiceAccount that was created.
	accountCreatedReason = "ServiceAccountCreated"
	managedByLabel       = "app.kubernetes.io/managed-by"
)

// ensureAccount returns the problem of a virtual kubelet whose ServiceAccount does not exist, or nil. If the controller
// creates ServiceAccounts, it creates the missing one first. Existing ones are not changed, whoever has created them.
func (c *Controller) ensureAccount(ctx context.Context, v *virtualNode, desired *appsv1.Deployment) (*problem, error) {
	found, err := c.hasAccount(ctx, desired)
	if err != nil || found {
		return nil, err
	}
	if name := desired.Spec.Template.Spec.ServiceAccountName; name != v.Name {
		return &problem{reason: noAccountReason, message: fmt.Sprintf("ServiceAccount %s/%s, which spec.template of this VirtualNode names, does not exist: create it", v.Namespace, name), retry: accountRetryInterval}, nil
	}
	if !c.options.CreateAccounts {
		return v.withoutAccount("so the virtual kubelet has no permissions"), nil
	}
	if why := c.whyNoAccount(v); why != "" {
		return v.withoutAccount("and the controller manager does not create it, because " + why), nil
	}
	return c.createAccount(ctx, v)
}

// hasAccount reports whether the ServiceAccount of a virtual kubelet exists. Without the ServiceAccount, the pods of
// the Deployment would be rejected, and retried with an increasing delay.
func (c *Controller) hasAccount(ctx context.Context, desired *appsv1.Deployment) (bool, error) {
	accounts := &metav1.PartialObjectMetadataList{}
	accounts.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccountList"))
	if err := c.live.List(ctx, accounts, client.InNamespace(desired.Namespace), client.MatchingFields{metav1.ObjectNameField: desired.Spec.Template.Spec.ServiceAccountName}); err != nil {
		return false, fmt.Errorf("listing ServiceAccounts in namespace %s, %w", desired.Namespace, err)
	}
	return len(accounts.Items) > 0, nil
}

// withoutAccount returns the problem of a missing ServiceAccount that an administrator has to create.
func (v *virtualNode) withoutAccount(why string) *problem {
	return &problem{reason: noAccountReason, message: fmt.Sprintf("ServiceAccount %s/%s does not exist, %s: run refractctl create virtualnode %s --provider=%s, "+
		"which creates it with its roles and changes nothing else, or list the virtual node in the values of the chart (virtualKubelets)", v.Namespace, v.Name, why, v.Name, v.provider()), retry: accountRetryInterval}
}

// whyNoAccount returns the reason why the controller does not create a ServiceAccount for a VirtualNode, or "". Whoever
// may write VirtualNodes in a tenant namespace must not be able to choose the image that runs with the permissions of a
// virtual kubelet. An admission policy of the chart keeps fields as they are that are checked here.
func (c *Controller) whyNoAccount(v *virtualNode) string {
	switch {
	case v.Namespace != wire.TenantNamespace(v.provider()):
		return "the VirtualNode is not in namespace " + wire.TenantNamespace(v.provider()) + " of its provider"
	case slices.Contains([]string{wire.GatewayServiceAccount, "default"}, v.Name):
		return "other pods use a ServiceAccount of that name"
	case v.Spec.Template != nil:
		return "spec.template may change what runs with its permissions"
	case v.templateName.Namespace != c.options.Installation.Namespace:
		return fmt.Sprintf("VkOptionsTemplate %s is not in namespace %s of the installation", v.templateName, c.options.Installation.Namespace)
	case v.Spec.KubeconfigSecretRef == nil || v.Spec.KubeconfigSecretRef.Name == "":
		return "spec.kubeconfigSecretRef is empty"
	// The controller manager could then grant access to any Secret of the namespace.
	case c.options.JoinsProviders && !strings.HasPrefix(v.Spec.KubeconfigSecretRef.Name, "kubeconfig-"):
		return "the name of Secret " + v.Spec.KubeconfigSecretRef.Name + " does not begin with kubeconfig-, which authentication.joinProviders requires"
	}
	return ""
}

// createAccount creates the roles and bindings of a virtual kubelet, and then its ServiceAccount. If it is interrupted,
// the ServiceAccount is still missing, so that it is called again. All objects have the label of the virtual node, with
// which they are deleted together with it, and that of refractctl, which updates them as its own.
func (c *Controller) createAccount(ctx context.Context, v *virtualNode) (*problem, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name}}
	kubelet := rbac.Kubelet{Prefix: c.options.RolePrefix, NodeName: v.Name, TenantNamespace: v.Namespace,
		KubeconfigSecret: v.Spec.KubeconfigSecretRef.Name, Subject: rbac.ServiceAccount(account.Namespace, account.Name)}
	var objects []client.Object
	for _, object := range kubelet.Access() {
		objects = append(objects, object)
	}
	for _, object := range append(objects, account) {
		object.SetLabels(map[string]string{wire.VirtualNodeLabel: v.Name, managedByLabel: wire.ManagedByRefractctl})
		if wrong, err := c.grant(ctx, v, object); err != nil || wrong != nil {
			return wrong, err
		}
	}
	c.report.Tell(v.VirtualNode, nil, accountCreatedReason, deployAction, "Created ServiceAccount "+v.Name+" of the virtual kubelet, with its roles and bindings")
	return nil, nil
}

// grant creates a role, a binding or the ServiceAccount of a virtual kubelet.
func (c *Controller) grant(ctx context.Context, v *virtualNode, object client.Object) (*problem, error) {
	kind, err := c.client.GroupVersionKindFor(object)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%s %s", kind.Kind, client.ObjectKeyFromObject(object))
	desired := object.DeepCopyObject().(client.Object)
	err = c.client.Create(ctx, object, client.FieldOwner(fieldManager))
	switch {
	case err == nil:
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		same, err := c.grantsTheSame(ctx, desired)
		if err != nil || same {
			return nil, err
		}
		return &problem{reason: noAccountReason, retry: accountRetryInterval,
			message: fmt.Sprintf("ServiceAccount %s/%s does not exist, and the controller manager does not create it, because %s exists and grants something else: delete that", v.Namespace, v.Name, what)}, nil
	case apierrors.IsNotFound(err): // the API server does not know the new role yet
		return nil, report.Later(fmt.Errorf("creating %s, %w", what, err), minCheckInterval)
	case apierrors.IsForbidden(err) && admission.DenyingPolicy(err) == "":
		return v.withoutAccount(fmt.Sprintf("and the controller manager may not create %s, unless refractctl peer or the chart has granted it access to Secret %s (%v)", what, v.Spec.KubeconfigSecretRef.Name, err)), nil
	}
	return nil, fmt.Errorf("creating %s, %w", what, err)
}

// grantsTheSame reports whether an existing role or binding grants the same as the desired one.
func (c *Controller) grantsTheSame(ctx context.Context, desired client.Object) (bool, error) {
	named := []client.ListOption{client.InNamespace(desired.GetNamespace()), client.MatchingFields{metav1.ObjectNameField: desired.GetName()}}
	switch d := desired.(type) {
	case *rbacv1.ClusterRole:
		list := &rbacv1.ClusterRoleList{}
		err := c.live.List(ctx, list, named...)
		return len(list.Items) > 0 && equality.Semantic.DeepEqual(list.Items[0].Rules, d.Rules), err
	case *rbacv1.Role:
		list := &rbacv1.RoleList{}
		err := c.live.List(ctx, list, named...)
		return len(list.Items) > 0 && equality.Semantic.DeepEqual(list.Items[0].Rules, d.Rules), err
	case *rbacv1.ClusterRoleBinding:
		list := &rbacv1.ClusterRoleBindingList{}
		err := c.live.List(ctx, list, named...)
		return len(list.Items) > 0 && list.Items[0].RoleRef == d.RoleRef && equality.Semantic.DeepEqual(list.Items[0].Subjects, d.Subjects), err
	case *rbacv1.RoleBinding:
		list := &rbacv1.RoleBindingList{}
		err := c.live.List(ctx, list, named...)
		return len(list.Items) > 0 && list.Items[0].RoleRef == d.RoleRef && equality.Semantic.DeepEqual(list.Items[0].Subjects, d.Subjects), err
	}
	return true, nil
}
