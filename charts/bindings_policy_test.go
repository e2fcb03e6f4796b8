// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
)

// upgrade installs the roles and policies of the chart with other values.
func (h *held) upgrade(change func(values map[string]any)) {
	h.Helper()
	changed := heldValues()
	change(changed)
	for _, object := range objects(h.T, changed) {
		switch object.(type) {
		case *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding, *rbacv1.Role, *rbacv1.RoleBinding,
			*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding:
			h.must(client.IgnoreNotFound(h.admin.Delete(h.Context(), object)))
			object.SetResourceVersion("")
			h.must(h.admin.Create(h.Context(), object))
		}
	}
}

func bindingOf(namespace, kind, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "of-" + role}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}}
}

// TestTheManagerBindsOnlyItsRoles checks that a compromised controller manager cannot bind other roles than its
// controllers do, although RBAC lets it bind every role whose permissions it has itself. The controllers can bind
// theirs.
func TestTheManagerBindsOnlyItsRoles(t *testing.T) {
	accounts := func(v map[string]any) { v["offloading"] = map[string]any{"createServiceAccounts": true} }
	gateways := func(v map[string]any) {
		v["networking"] = map[string]any{
			"addresses": map[string]any{"enabled": true},
			"gateways":  map[string]any{"enabled": true, "image": map[string]any{"name": "gateway"}},
		}
	}
	joining := func(v map[string]any) {
		v["authentication"] = map[string]any{"enabled": true, "joinProviders": true}
	}
	for name, variant := range map[string]struct {
		change                      func(map[string]any)
		prefix                      string
		accounts, gateways, joining bool
	}{
		"by default": {prefix: "liqo"},
		"accounts":   {change: accounts, prefix: "liqo", accounts: true},
		"gateways":   {change: gateways, prefix: "liqo", gateways: true},
		"joining":    {change: joining, prefix: "liqo", accounts: true, joining: true},
		"accounts and gateways": {change: func(v map[string]any) {
			accounts(v)
			gateways(v)
		}, prefix: "liqo", accounts: true, gateways: true},
		"beside Liqo": {change: func(v map[string]any) {
			accounts(v)
			v["adoptLiqo"] = true
			delete(v, "authentication")
		}, prefix: "refract", accounts: true},
		"other names": {change: func(v map[string]any) {
			accounts(v)
			gateways(v)
			v["rolePrefix"] = "acme"
		}, prefix: "acme", accounts: true, gateways: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := hold(t)
			if variant.change != nil {
				h.upgrade(variant.change)
			}
			manager := h.as(fmt.Sprintf("system:serviceaccount:%s:%s-controller-manager", releaseNamespace, releaseName),
				"system:serviceaccounts", "system:authenticated")
			// The API server has changed its policies when it accepts the bindings that depend on the values.
			// It can give a virtual kubelet access to a Secret only where it has access itself.
			if variant.joining {
				h.bindsCredentials(manager, variant.prefix)
			}
			secret := "milan" // of the values
			if variant.joining {
				secret = "kubeconfig-milan"
			}
			h.bindsItsRoles(manager, variant.prefix, secret, variant.accounts, variant.gateways)
			if variant.joining {
				h.refusesOtherSecrets(manager, variant.prefix)
			}
			h.bindsNoOther(manager, variant.prefix)
			if variant.prefix != "liqo" {
				// RBAC still lets it bind the roles of the former prefix.
				former := bindingOf(remoteNamespace, "ClusterRole", "liqo-virtual-kubelet-remote", rbac.Group("rome"))
				h.refused(manager, former, onlyOwnBindings)
			}
			if variant.accounts || variant.gateways {
				own := &rbacv1.ClusterRoleBinding{
					ObjectMeta: metav1.ObjectMeta{Name: "more", Labels: map[string]string{wire.VirtualNodeLabel: "eve"}},
					RoleRef: rbacv1.RoleRef{
						APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: variant.prefix + "-controller-manager",
					},
					Subjects: []rbacv1.Subject{rbac.ServiceAccount("liqo-tenant-milan", "eve")},
				}
				h.refused(manager, own, "The controller manager grants ")
			}
			h.changesNoOther(manager, variant.prefix)
		})
	}
}

const onlyOwnBindings = "binds only roles of consumers, virtual kubelets and gateways"

// bindsItsRoles checks that the controller manager can create the bindings that its controllers create. secret contains
// the kubeconfig of the virtual kubelet.
func (h *held) bindsItsRoles(manager client.Client, prefix, secret string, accounts, gateways bool) {
	h.Helper()
	account := rbac.ServiceAccount("liqo-tenant-rome", wire.ConsumerServiceAccount)
	bindings := []client.Object{
		bindingOf("somebody-elses", "ClusterRole", prefix+"-virtual-kubelet-extended", rbac.ServiceAccount("liqo-tenant-milan", "milan")),
		bindingOf(remoteNamespace, "ClusterRole", prefix+"-virtual-kubelet-remote", rbac.Group("rome"), account),
	}
	if accounts {
		kubelet := rbac.Kubelet{
			Prefix: prefix, NodeName: "milan-2", TenantNamespace: "liqo-tenant-milan", KubeconfigSecret: secret,
			Subject: rbac.ServiceAccount("liqo-tenant-milan", "milan-2"),
		}
		for _, object := range kubelet.Access() {
			object.(client.Object).SetLabels(map[string]string{wire.VirtualNodeLabel: "milan-2"})
			bindings = append(bindings, object.(client.Object))
		}
	}
	if gateways {
		names := rbac.Gateways{Prefix: prefix}
		for _, object := range names.Bindings("liqo-tenant-milan", rbac.ServiceAccount("liqo-tenant-milan", wire.GatewayServiceAccount)) {
			bindings = append(bindings, object.(client.Object))
		}
	}
	for _, object := range bindings {
		h.attempt(fmt.Sprintf("creating %T %s", object, client.ObjectKeyFromObject(object)), "", func() error {
			return client.IgnoreAlreadyExists(manager.Create(h.Context(), object.DeepCopyObject().(client.Object)))
		})
	}
}

// bindsCredentials checks that the controller manager can give itself access to the Secrets of tenant namespaces, and
// give it to nobody else and nowhere else.
func (h *held) bindsCredentials(manager client.Client, prefix string) {
	h.Helper()
	own := rbac.User(fmt.Sprintf("system:serviceaccount:%s:%s-controller-manager", releaseNamespace, releaseName))
	of := func(namespace string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
		return bindingOf(namespace, "ClusterRole", prefix+"-controller-manager-credentials", subjects...)
	}
	h.attempt("binding its credentials", "", func() error {
		return client.IgnoreAlreadyExists(manager.Create(h.Context(), of("liqo-tenant-milan", own)))
	})
	for _, namespace := range []string{"somebody-elses", remoteNamespace, metav1.NamespaceSystem, releaseNamespace} {
		h.refused(manager, of(namespace, own), "access to the Secrets of tenant namespaces only")
	}
	h.refused(manager, of("liqo-tenant-rome", rbac.User("eve")), "to nobody else")
	h.refused(manager, of("liqo-tenant-rome", own, rbac.Group("rome")), "to nobody else")
}

// refusesOtherSecrets checks that the controller manager cannot give a virtual kubelet access to Secrets that are no
// kubeconfigs. There are others in tenant namespaces.
func (h *held) refusesOtherSecrets(manager client.Client, prefix string) {
	h.Helper()
	for _, secret := range []string{"milan", wire.SignedNonceSecret} {
		kubelet := rbac.Kubelet{
			Prefix: prefix, NodeName: "milan-3", TenantNamespace: "liqo-tenant-milan", KubeconfigSecret: secret,
			Subject: rbac.ServiceAccount("liqo-tenant-milan", "milan-3"),
		}
		for _, object := range kubelet.Access() {
			if role, ok := object.(*rbacv1.Role); ok && role.Namespace == "liqo-tenant-milan" {
				role.Labels = map[string]string{wire.VirtualNodeLabel: "milan-3"}
				h.refused(manager, role, "one Secret whose name begins with kubeconfig-")
			}
		}
	}
}

// bindsNoOther checks that the controller manager cannot bind other roles whose permissions it has.
func (h *held) bindsNoOther(manager client.Client, prefix string) {
	h.Helper()
	own, eve := prefix+"-controller-manager", rbac.User("eve")
	milan := rbac.ServiceAccount("liqo-tenant-milan", "milan")
	for _, namespace := range []string{
		"somebody-elses", remoteNamespace, "liqo-tenant-rome", metav1.NamespaceSystem, corev1.NamespaceNodeLease, releaseNamespace,
	} {
		for _, subject := range []rbacv1.Subject{eve, rbac.Group("rome"), milan} {
			h.refused(manager, bindingOf(namespace, "ClusterRole", own, subject), onlyOwnBindings)
		}
	}
	h.refused(manager, bindingOf("somebody-elses", "ClusterRole", own), onlyOwnBindings)
	h.refused(manager, bindingOf("somebody-elses", "ClusterRole", "system:basic-user", eve), onlyOwnBindings)
	clusterwide := prefix + "-virtual-kubelet-remote-clusterwide"
	h.refused(manager, bindingOf(remoteNamespace, "ClusterRole", clusterwide, rbac.Group("rome")), onlyOwnBindings)
	h.refused(manager, bindingOf(releaseNamespace, "Role", own+"-leader-election", eve), onlyOwnBindings)
	// A Role may have the name of one of the ClusterRoles.
	for _, named := range []struct {
		namespace, role string
		subject         rbacv1.Subject
	}{
		{"somebody-elses", "virtual-kubelet-extended", milan},
		{remoteNamespace, "virtual-kubelet-remote", rbac.Group("rome")},
		{"liqo-tenant-rome", "remote-tenant", rbac.User("rome")},
	} {
		name := prefix + "-" + named.role
		h.must(h.admin.Create(h.Context(), &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: named.namespace, Name: name},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}}},
		}))
		h.refused(manager, bindingOf(named.namespace, "Role", name, named.subject), onlyOwnBindings)
	}
}

// changesNoOther checks that the controller manager cannot add subjects to a binding that it could not create. It can
// remove them, to revoke access.
func (h *held) changesNoOther(manager client.Client, prefix string) {
	h.Helper()
	for role, refusal := range map[string]string{
		"controller-manager":       "adds no subjects to other RoleBindings",
		"virtual-kubelet-extended": "only to ServiceAccounts",
		"virtual-kubelet-remote":   "only in namespaces that were created for them",
	} {
		theirs := bindingOf("somebody-elses", "ClusterRole", prefix+"-"+role, rbac.User("alice"), rbac.User("bob"))
		theirs.Name = "theirs-" + role
		h.must(h.admin.Create(h.Context(), theirs))
		patch := func(text, says string) {
			h.attempt("patching the binding of role "+role+" with "+text, says, func() error {
				return manager.Patch(h.Context(), theirs.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)), client.DryRunAll)
			})
		}
		subject := func(kind, name string) string {
			return fmt.Sprintf(`{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q}`, kind, name)
		}
		patch(`{"subjects":[`+subject("User", "eve")+`]}`, refusal)
		patch(`{"subjects":[`+subject("Group", "alice")+`]}`, refusal)
		patch(`{"subjects":[`+subject("User", "alice")+`,`+subject("User", "eve")+`]}`, refusal)
		patch(`{"subjects":[`+subject("User", "bob")+`]}`, "")
		patch(`{"subjects":null}`, "")
		metadata := ""
		if role == "controller-manager" {
			metadata = "does not change the metadata of RoleBindings"
		}
		patch(`{"metadata":{"annotations":{"example.com/team":"web"}}}`, metadata)
		patch(`{"metadata":{"labels":{"liqo.io/virtual-node":"eve"}}}`, metadata)
		patch(`{"metadata":{"finalizers":["example.com/kept"]}}`, metadata)
		patch(`{"metadata":{"ownerReferences":[{"apiVersion":"example.org/v1","kind":"Tenant","name":"rome",`+
			`"uid":"1d0f4bd6-0000-4000-8000-000000000000"}]}}`, metadata)
	}
}
