// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
)

// TestPeeringUsersDecideNothing checks that a peering user may write the Tenant of its consumer, but not the fields
// with the decisions of an administrator. Users who may bind the role of consumers, such as cluster-admin, count as
// administrators.
func TestPeeringUsersDecideNothing(t *testing.T) {
	h := hold(t)
	bind := func(name, namespace, role string) {
		h.must(h.admin.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Subjects: []rbacv1.Subject{rbac.User(name)},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}))
	}
	tenants := rbacv1.PolicyRule{APIGroups: []string{"authentication.liqo.io"}, Resources: []string{"tenants"}, Verbs: []string{"*"}}
	for name, rules := range map[string][]rbacv1.PolicyRule{
		"writes-tenants": {tenants},
		"admits":         {tenants, {APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{"liqo-remote-controlplane"}, Verbs: []string{"bind"}}},
		"root":           {{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	} {
		h.must(h.admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}))
		if name == "writes-tenants" {
			bind("peering-user", sharedNamespace, name)
			bind("system:serviceaccount:"+releaseNamespace+":"+releaseName+"-controller-manager", sharedNamespace, name)
			continue
		}
		h.must(h.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{rbac.User(name)},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}))
	}
	const labelled = `labels: {plugins.refract.io/admitted-by: refractctl}`
	tenant := func(name, labels, spec string) *unstructured.Unstructured {
		return h.tenantObject(`{apiVersion: authentication.liqo.io/v1beta1, kind: Tenant, metadata: {name: ` + name + `, ` + labels + `}, spec: {clusterID: rome, ` + spec + `}}`)
	}
	h.must(h.admin.Create(t.Context(), tenant("ours", labelled, "tenantCondition: Drained")))
	h.must(h.admin.Create(t.Context(), tenant("theirs", "labels: {}", "tenantCondition: Cordoned")))

	const label, condition, policy = "plugins.refract.io/admitted-by]: only", "spec.tenantCondition: only", "spec.authzPolicy: only"
	users := map[string]client.Client{
		"a peering user": h.as("peering-user"), "who admits consumers": h.as("admits"), "an administrator": h.as("root"),
		"the controller manager": h.as("system:serviceaccount:" + releaseNamespace + ":" + releaseName + "-controller-manager"),
	}
	for user, c := range users {
		refused := func(says string) string {
			if user == "a peering user" {
				return says
			}
			return ""
		}
		create := func(what string, object *unstructured.Unstructured, says string) {
			h.attempt(user+" creates "+what, says, func() error { return c.Create(t.Context(), object.DeepCopy(), client.DryRunAll) })
		}
		change := func(name, text, says string) {
			h.attempt(user+" writes "+text+" to "+name, says, func() error {
				return c.Patch(t.Context(), tenant(name, "labels: {}", ""), client.RawPatch(types.MergePatchType, []byte(text)), client.DryRunAll)
			})
		}
		create("a Tenant", tenant("new", "labels: {liqo.io/remote-cluster-id: rome}", "csr: YQ==, publicKey: YQ==, signature: YQ=="), "")
		create("a Tenant with the label", tenant("new", labelled, ""), refused(label))
		create("a Tenant without a key", tenant("new", "labels: {}", "authzPolicy: TolerateNoHandshake"), refused(policy))
		change("theirs", `{"metadata":{"labels":{"plugins.refract.io/admitted-by":"refractctl"}}}`, refused(label))
		change("ours", `{"metadata":{"labels":null}}`, refused(label))
		change("ours", `{"metadata":{"labels":{"plugins.refract.io/admitted-by":"nobody"}}}`, refused(label))
		change("ours", `{"spec":{"tenantCondition":"Active"}}`, refused(condition))
		change("ours", `{"spec":{"tenantCondition":null}}`, refused(condition))
		change("theirs", `{"spec":{"tenantCondition":"Active"}}`, refused(condition))
		change("theirs", `{"spec":{"authzPolicy":"TolerateNoHandshake"}}`, refused(policy))
		change("theirs", `{"metadata":{"labels":{"liqo.io/remote-cluster-id":"rome"}},"spec":{"csr":"YQ==","publicKey":"YQ==","signature":"YQ=="}}`, "")
	}
}

// TestPeeringUsersGetNoTokens checks that a peering user, whose role allows it to create Secrets in the tenant namespace,
// cannot create one into which this cluster writes the token of a ServiceAccount. In a peering in both directions, the
// ServiceAccounts of virtual kubelets are there, too.
func TestPeeringUsersGetNoTokens(t *testing.T) {
	h := hold(t)
	role := rbac.PeeringUserTenant()
	h.must(h.admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Rules: role.PolicyRules(strings.NewReplacer())}))
	h.must(h.admin.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: sharedNamespace, Name: role.Name}, Subjects: []rbacv1.Subject{rbac.User("peering-user")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}}))
	user := h.as("peering-user")
	secret := func(kind corev1.SecretType, annotations map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: sharedNamespace, Name: "of-a-peering-user", Annotations: annotations}, Type: kind}
	}
	for _, account := range []string{wire.ConsumerServiceAccount, "rome", "default"} {
		token := secret(corev1.SecretTypeServiceAccountToken, map[string]string{corev1.ServiceAccountNameKey: account})
		h.refused(user, token.DeepCopy(), "type: only administrators (bind on the ClusterRole liqo-remote-controlplane) create Secrets")
		h.must(h.admin.Create(t.Context(), token, client.DryRunAll))
	}
	// A peering user must be able to create a Secret of another type, because liqoctl requests a nonce with one.
	h.must(user.Create(t.Context(), secret("", nil), client.DryRunAll))
}

// TestLimitedTenantsAreRecordedBeforeTheyGo checks that a user who joins a consumer cannot delete a cordoned or
// drained Tenant before the controller manager has recorded that the Tenant is cordoned or drained.
func TestLimitedTenantsAreRecordedBeforeTheyGo(t *testing.T) {
	h := hold(t)
	h.must(h.admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "tenants"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"authentication.liqo.io"}, Resources: []string{"tenants"}, Verbs: []string{"*"}}}}))
	const user, collector = "peering-user", "system:serviceaccount:kube-system:generic-garbage-collector"
	h.must(h.admin.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: sharedNamespace, Name: "tenants"}, Subjects: []rbacv1.Subject{rbac.User(user), rbac.User(collector)},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tenants"}}))
	const says = "has not recorded yet what an administrator has decided"
	tenants := map[string]*unstructured.Unstructured{}
	for name, condition := range map[string]string{"active": "Active", "cordoned": "Cordoned", "drained": "Drained"} {
		tenants[name] = h.tenantObject(`{apiVersion: authentication.liqo.io/v1beta1, kind: Tenant, metadata: {name: ` + name + `}, spec: {clusterID: rome, tenantCondition: ` + condition + `}}`)
		h.must(h.admin.Create(t.Context(), tenants[name]))
	}
	attempt := func(user, name, says string) {
		h.attempt(user+" deletes the Tenant "+name, says, func() error {
			return h.as(user).Delete(t.Context(), tenants[name].DeepCopy(), client.DryRunAll)
		})
	}
	record := func(text string) {
		h.must(h.admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sharedNamespace}},
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"plugins.refract.io/tenant-condition":"`+text+`"}}}`))))
	}
	attempt(user, "active", "")
	attempt(user, "cordoned", says)
	attempt(user, "drained", says)
	attempt(collector, "drained", "")
	h.attempt("peering-user deletes all Tenants", says, func() error {
		all := &unstructured.Unstructured{}
		all.SetGroupVersionKind(tenants["drained"].GroupVersionKind())
		return h.as(user).DeleteAllOf(t.Context(), all, client.InNamespace(sharedNamespace), client.DryRunAll)
	})
	record("Cordoned/" + string(tenants["drained"].GetUID()))
	attempt(user, "drained", says)
	attempt(user, "cordoned", says)
	record("Cordoned/" + string(tenants["cordoned"].GetUID()))
	attempt(user, "cordoned", "")
	attempt(user, "drained", says)
}
