// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/rbac"
)

// A peering user writes the Tenant of its consumer, but cannot change the decisions of an administrator in it. Administrators are those who may bind the
// role of consumers, such as cluster-admin.
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
