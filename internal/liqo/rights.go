// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package liqo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/rbac"
)

// rolePrefix of the roles that virtual kubelets get in addition to Liqo's.
const rolePrefix = "refract"

const (
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "refractctl-liqo"
)

// rights are the roles and bindings of one virtual kubelet.
func rights(vn *offloading.VirtualNode) []rbac.Object {
	secret := ""
	if vn.Spec.KubeconfigSecretRef != nil {
		secret = vn.Spec.KubeconfigSecretRef.Name
	}
	kubelet := rbac.Kubelet{Prefix: rolePrefix, NodeName: vn.Name, TenantNamespace: vn.Namespace, KubeconfigSecret: secret, Subject: rbac.ServiceAccount(vn.Namespace, vn.Name)}
	objects := append(kubelet.Objects(), kubelet.Everywhere())
	for _, object := range objects {
		object.SetLabels(map[string]string{managedByLabel: managedBy})
	}
	return objects
}

// lacks asks the API server which rights a virtual kubelet has not.
func (o *Options) lacks(ctx context.Context, vn *offloading.VirtualNode) (missing []string, err error) {
	for _, object := range rights(vn) {
		var rules []rbacv1.PolicyRule
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			rules = role.Rules
		case *rbacv1.Role:
			rules = role.Rules
		}
		for _, attributes := range rbac.Attributes(object.GetNamespace(), rules) {
			review, err := o.Clientset.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               serviceaccount.MakeUsername(vn.Namespace, vn.Name),
				Groups:             append(serviceaccount.MakeGroupNames(vn.Namespace), "system:authenticated"),
				ResourceAttributes: &attributes,
			}}, metav1.CreateOptions{})
			if err != nil {
				return nil, fmt.Errorf("asking for the rights of ServiceAccount %s, %w", client.ObjectKeyFromObject(vn), err)
			}
			text := strings.TrimSuffix(attributes.Verb+" "+attributes.Resource+"/"+attributes.Subresource, "/")
			if !review.Status.Allowed && !slices.Contains(missing, text) {
				missing = append(missing, text)
			}
		}
	}
	return missing, nil
}

// withdraw deletes the rights that were granted to a virtual kubelet; those that all share go with the last one.
func (o *Options) withdraw(ctx context.Context, vn *offloading.VirtualNode, last bool) error {
	for _, object := range slices.Backward(rights(vn)) {
		if _, role := object.(*rbacv1.ClusterRole); role && !last && !strings.HasSuffix(object.GetName(), "-"+vn.Name) {
			continue
		}
		whole, ok := object.(client.Object)
		if !ok {
			continue
		}
		found := whole.DeepCopyObject().(client.Object)
		err := o.Client.Get(ctx, client.ObjectKeyFromObject(whole), found)
		if apierrors.IsNotFound(err) || err == nil && found.GetLabels()[managedByLabel] != managedBy {
			continue
		}
		if err == nil {
			err = client.IgnoreNotFound(o.Client.Delete(ctx, found))
		}
		if err != nil {
			return fmt.Errorf("deleting %T %s, %w", whole, client.ObjectKeyFromObject(whole), err)
		}
	}
	return nil
}
