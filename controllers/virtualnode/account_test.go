// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// secretOf returns the name of the Secret of the peering with a provider.
func secretOf(provider string) string { return "kubeconfig-controlplane-" + provider }

// kubeletOf returns the identity of the virtual kubelet of a virtual node.
func kubeletOf(provider, name string) rbac.Kubelet {
	tenant := wire.TenantNamespace(provider)
	return rbac.Kubelet{NodeName: name, TenantNamespace: tenant, KubeconfigSecret: secretOf(provider), Subject: rbac.ServiceAccount(tenant, name)}
}

// peer creates the objects of a peering with a provider that has no virtual node yet.
func peer(t *testing.T, provider string) {
	t.Helper()
	tenant := wire.TenantNamespace(provider)
	consumer.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: provider}}})
	manager := rbac.Manager{Namespace: metav1.NamespaceDefault, Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, consumer.Grant(t.Context(), append(manager.KubeletAccounts(), manager.Provider(tenant, secretOf(provider))...)...))
	require.NoError(t, consumer.Grant(t.Context(), kubeletOf(provider, "shared").Objects()[:2]...), "the ClusterRoles of the chart")
}

// startWithAccounts starts the controllers with a template, and lets them create ServiceAccounts.
func startWithAccounts(t *testing.T, templateName string) {
	t.Helper()
	_, byDefault := template(t, templateName)
	consumer.StartManager(t, byDefault, func(o *controllers.Options) {
		o.VirtualNodes.CreateAccounts, o.Installation = true, metav1.NamespaceDefault
	})
}

// ofLiqoctl is a VirtualNode as liqoctl create virtualnode writes it.
const ofLiqoctl = `
apiVersion: offloading.liqo.io/v1beta1
kind: VirtualNode
metadata:
  name: NAME
  namespace: liqo-tenant-PROVIDER
  labels:
    liqo.io/remote-cluster-id: PROVIDER
spec:
  clusterID: PROVIDER
  createNode: true
  disableNetworkCheck: false
  kubeconfigSecretRef:
    name: kubeconfig-controlplane-PROVIDER
  labels:
    liqo.io/provider: kubeadm
    liqo.io/remote-cluster-id: PROVIDER
  offloadingPatch: {}
  resourceQuota:
    hard:
      cpu: "2"
      memory: 4Gi
      pods: "110"
`

func createAsLiqoctl(t *testing.T, provider, name string) *offloading.VirtualNode {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(strings.NewReplacer("NAME", name, "PROVIDER", provider).Replace(ofLiqoctl)), &object.Object))
	consumer.Create(t, object)
	vn := &offloading.VirtualNode{}
	consumer.Get(t, vn, object.GetNamespace(), name)
	return vn
}

// may reports whether a ServiceAccount has a permission.
func may(t *testing.T, account rbacv1.Subject, attributes authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + account.Namespace + ":" + account.Name, Groups: []string{"system:serviceaccounts", "system:authenticated"}, ResourceAttributes: &attributes,
	}}
	consumer.Create(t, review)
	return review.Status.Allowed
}

// grantsOf returns the rules, or the role and the subjects, of roles and bindings.
func grantsOf(t *testing.T, objects ...client.Object) map[string]string {
	t.Helper()
	grants := map[string]string{}
	for _, object := range objects {
		text := ""
		switch o := object.(type) {
		case *rbacv1.ClusterRole:
			text = fmt.Sprint(o.Rules)
		case *rbacv1.Role:
			text = fmt.Sprint(o.Rules)
		case *rbacv1.ClusterRoleBinding:
			text = fmt.Sprint(o.RoleRef, o.Subjects)
		case *rbacv1.RoleBinding:
			text = fmt.Sprint(o.RoleRef, o.Subjects)
		}
		grants[fmt.Sprintf("%T %s", object, client.ObjectKeyFromObject(object))] = text
	}
	return grants
}

// granted returns the roles and bindings that have the label of a virtual node.
func granted(t *testing.T, node string) (found []client.Object) {
	t.Helper()
	ofNode := client.MatchingLabels{wire.VirtualNodeLabel: node}
	clusterRoles, clusterBindings, roles, bindings := &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}
	for _, list := range []client.ObjectList{clusterRoles, clusterBindings, roles, bindings} {
		require.NoError(t, consumer.Client.List(t.Context(), list, ofNode))
	}
	for i := range clusterRoles.Items {
		found = append(found, &clusterRoles.Items[i])
	}
	for i := range clusterBindings.Items {
		found = append(found, &clusterBindings.Items[i])
	}
	for i := range roles.Items {
		found = append(found, &roles.Items[i])
	}
	for i := range bindings.Items {
		found = append(found, &bindings.Items[i])
	}
	return found
}

// TestAVirtualNodeOfAnotherToolGetsItsAccount checks that the virtual kubelet of a VirtualNode of liqoctl gets the same
// permissions as one of refractctl, and no others, and that they are deleted with the VirtualNode. The permissions of
// other virtual nodes are not touched.
func TestAVirtualNodeOfAnotherToolGetsItsAccount(t *testing.T) {
	peer(t, "siena")
	startWithAccounts(t, "accounts")
	own := virtualNode(t, "siena", "siena-own")
	before := granted(t, own.Name)
	require.NotEmpty(t, before)

	vn := createAsLiqoctl(t, "siena", "siena")
	made := awaitDeployment(t, vn, "the ServiceAccount", func(d *appsv1.Deployment) bool { return d.Spec.Template.Spec.ServiceAccountName == vn.Name })
	consumer.AwaitEvent(t, vn.Namespace, "VirtualNode", vn.Name, "ServiceAccountCreated")
	consumer.Get(t, &corev1.ServiceAccount{}, vn.Namespace, vn.Name)
	kubelet := kubeletOf("siena", vn.Name)
	var want []client.Object
	for _, object := range kubelet.Access() {
		want = append(want, object)
	}
	assert.Equal(t, grantsOf(t, want...), grantsOf(t, granted(t, vn.Name)...))
	for _, object := range granted(t, vn.Name) {
		assert.True(t, cluster.IsOurs(object), "refractctl updates %T %s", object, object.GetName())
	}
	for _, object := range kubelet.Objects() {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			if role.Name == rbac.VirtualKubeletExtended().Named("") {
				continue // bound in offloaded namespaces
			}
			for _, attributes := range rbac.Attributes("", role.Rules) {
				assert.True(t, may(t, kubelet.Subject, attributes), "%+v", attributes)
			}
		case *rbacv1.Role:
			for _, attributes := range rbac.Attributes(role.Namespace, role.Rules) {
				assert.True(t, may(t, kubelet.Subject, attributes), "%+v", attributes)
			}
		}
	}
	for _, attributes := range []authorizationv1.ResourceAttributes{
		{Verb: "patch", Resource: "nodes", Name: own.Name},
		{Verb: "patch", Resource: "nodes", Subresource: "status", Name: own.Name},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease", Name: own.Name},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: vn.Namespace, Name: wire.HeartbeatLease},
		{Verb: "patch", Group: offloading.GroupVersion.Group, Resource: "virtualnodes", Subresource: "status", Namespace: vn.Namespace, Name: own.Name},
		{Verb: "get", Resource: "secrets", Namespace: vn.Namespace, Name: "other"},
		{Verb: "list", Resource: "secrets", Namespace: vn.Namespace},
		{Verb: "create", Resource: "serviceaccounts", Namespace: vn.Namespace},
	} {
		assert.False(t, may(t, kubelet.Subject, attributes), "%+v", attributes)
	}

	consumer.Delete(t, vn)
	consumer.AwaitGone(t, vn)
	consumer.AwaitGone(t, made)
	assert.Empty(t, access(t, vn.Name), "permissions remain")
	consumer.Get(t, &corev1.ServiceAccount{}, own.Namespace, own.Name)
	assert.Equal(t, grantsOf(t, before...), grantsOf(t, granted(t, own.Name)...), "the permissions of another virtual node are not changed")
	for _, object := range granted(t, own.Name) {
		for _, managed := range object.GetManagedFields() {
			assert.NotEqual(t, wire.VirtualNodeFieldManager, managed.Manager, "%T %s", object, object.GetName())
		}
	}
}

// TestAccountsThatAreNotCreated checks that the controller creates no ServiceAccount for a VirtualNode that can change
// what runs with its permissions, and that the condition contains the reason and the remedy.
func TestAccountsThatAreNotCreated(t *testing.T) {
	peer(t, "empoli")
	startWithAccounts(t, "withheld")
	tenant := wire.TenantNamespace("empoli")
	consumer.Create(t, &offloading.VkOptionsTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "mine"}, Spec: offloading.VkOptionsTemplateSpec{ContainerImage: "registry.example/mine:1"}})
	taken := kubeletOf("empoli", "empoli-taken")
	taken.Subject = rbac.User("eve")
	require.NoError(t, consumer.Grant(t.Context(), taken.Access()...))
	for name, c := range map[string]struct {
		change func(*offloading.VirtualNode)
		text   string
	}{
		"empoli-template": {func(vn *offloading.VirtualNode) {
			vn.Spec.Template = &offloading.DeploymentTemplate{}
			vn.Spec.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "virtual-kubelet", Image: "registry.example/mine:1"}}
		}, "spec.template may change what runs"},
		"empoli-options": {func(vn *offloading.VirtualNode) {
			vn.Spec.VkOptionsTemplateRef = &corev1.ObjectReference{Namespace: tenant, Name: "mine"}
		}, "is not in namespace default of the installation"},
		"empoli-elsewhere":         {func(vn *offloading.VirtualNode) { vn.Spec.ClusterID = core.ClusterID("pisa") }, "is not in namespace liqo-tenant-pisa"},
		"empoli-nothing":           {func(vn *offloading.VirtualNode) { vn.Spec.KubeconfigSecretRef = nil }, "spec.kubeconfigSecretRef is empty"},
		"empoli-other":             {func(vn *offloading.VirtualNode) { vn.Spec.KubeconfigSecretRef.Name = "other" }, "granted it access to Secret other"},
		"empoli-taken":             {func(*offloading.VirtualNode) {}, "exists and grants something else"},
		wire.GatewayServiceAccount: {func(*offloading.VirtualNode) {}, "other pods use a ServiceAccount of that name"},
	} {
		vn := bare(t, "empoli", name, withoutAccount, func(vn *offloading.VirtualNode) {
			vn.Spec.KubeconfigSecretRef = &corev1.LocalObjectReference{Name: secretOf("empoli")}
			c.change(vn)
		})
		awaitCondition(t, vn, offloading.VirtualKubeletConditionType, offloading.NoneConditionStatus, "ServiceAccountNotFound", c.text)
		remedy := "run refractctl create virtualnode " + name
		if name == "empoli-taken" { // refractctl does not change objects of others
			remedy = "delete that"
		}
		awaitCondition(t, vn, offloading.VirtualKubeletConditionType, offloading.NoneConditionStatus, "ServiceAccountNotFound", remedy)
		err := consumer.Client.Get(t.Context(), types.NamespacedName{Namespace: tenant, Name: name}, &corev1.ServiceAccount{})
		assert.True(t, apierrors.IsNotFound(err), "%s: %v", name, err)
		err = consumer.Client.Get(t.Context(), client.ObjectKeyFromObject(deployment(vn)), deployment(vn))
		assert.True(t, apierrors.IsNotFound(err), "%s: %v", name, err)
	}
}

// as returns a client of a user, to which the policies apply.
func as(t *testing.T, user string) client.Client {
	t.Helper()
	access := rest.CopyConfig(consumer.Config())
	access.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	c, err := client.New(access, client.Options{Scheme: consumer.Client.Scheme()})
	require.NoError(t, err)
	return c
}

// TestPoliciesForAccounts checks that the policies of the chart deny what a controller manager that was taken over could
// do with the permissions that it has only to grant them. It has all permissions here, so that only the policies deny.
func TestPoliciesForAccounts(t *testing.T) {
	peer(t, "prato")
	manager := as(t, controllertest.ManagerUser)
	require.NoError(t, consumer.Grant(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all-powerful-manager"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}, Subjects: []rbacv1.Subject{rbac.User(controllertest.ManagerUser)}}))
	t.Cleanup(func() {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all-powerful-manager"}}
		assert.NoError(t, consumer.Client.Delete(context.WithoutCancel(t.Context()), binding))
	})
	tenant, other := wire.TenantNamespace("prato"), consumer.Namespace(t)
	kubelet := kubeletOf("prato", "prato")
	labelled := func(object client.Object, node string) client.Object {
		object.SetLabels(map[string]string{wire.VirtualNodeLabel: node})
		return object
	}
	account := func(namespace, name, node string) client.Object {
		return labelled(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, node)
	}
	// find returns a role or a binding of the virtual kubelet with a change.
	find := func(kind, part string, change func(client.Object)) client.Object {
		for _, object := range kubelet.Access() {
			if strings.HasSuffix(fmt.Sprintf("%T", object), "."+kind) && strings.Contains(object.GetName(), part) {
				found := labelled(object, "prato")
				change(found)
				return found
			}
		}
		t.Fatalf("no %s %s", kind, part)
		return nil
	}
	clusterRole := func(change func(*rbacv1.ClusterRole)) client.Object {
		return find("ClusterRole", "-node-", func(o client.Object) { change(o.(*rbacv1.ClusterRole)) })
	}
	role := func(part string, change func(*rbacv1.Role)) client.Object {
		return find("Role", part, func(o client.Object) { change(o.(*rbacv1.Role)) })
	}
	addRule := func(part string, rule rbacv1.PolicyRule) client.Object {
		return role(part, func(r *rbacv1.Role) { r.Rules = append(r.Rules, rule) })
	}
	addClusterRule := func(rule rbacv1.PolicyRule) client.Object {
		return clusterRole(func(r *rbacv1.ClusterRole) { r.Rules = append(r.Rules, rule) })
	}
	rule := func(group, resource, verb string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: names}
	}
	clusterBinding := func(change func(*rbacv1.ClusterRoleBinding)) client.Object {
		return find("ClusterRoleBinding", "liqo-node-", func(o client.Object) { change(o.(*rbacv1.ClusterRoleBinding)) })
	}
	binding := func(part string, change func(*rbacv1.RoleBinding)) client.Object {
		return find("RoleBinding", part, func(o client.Object) { change(o.(*rbacv1.RoleBinding)) })
	}
	lease := func(namespace, name string) client.Object {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}

	controllertest.Eventually(t, "the permissions of the manager", func() error {
		return client.IgnoreAlreadyExists(manager.Create(t.Context(), lease(metav1.NamespaceDefault, rbac.LeaderElectionID), client.DryRunAll))
	})
	for _, object := range kubelet.Access() {
		require.NoError(t, manager.Create(t.Context(), labelled(object, "prato"), client.DryRunAll), "%T %s", object, object.GetName())
	}
	for _, object := range []client.Object{
		account(tenant, "prato", "prato"), lease(metav1.NamespaceDefault, rbac.LeaderElectionID), lease(metav1.NamespaceDefault, rbac.BesideLiqoElectionID),
	} {
		require.NoError(t, client.IgnoreAlreadyExists(manager.Create(t.Context(), object, client.DryRunAll)), "%T %s", object, object.GetName())
	}

	const (
		onlyAccounts, otherPods      = "only in tenant namespaces, with the name of a virtual node", "that other pods or the other cluster use"
		onlyRoles, restricted        = "only the roles of one virtual kubelet", "are restricted to the node of its name"
		onlyItsAccount, onlyOwnRoles = "only to the ServiceAccount of its virtual node", "only its own roles, each in its namespace"
		onlyLeases                   = "writes only the Lease of its own election"
		onlyKnownRoles               = "binds only roles of consumers, virtual kubelets and gateways"
	)
	impostor := consumer.Namespace(t) // its name does not begin with that of tenant namespaces
	consumer.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: impostor}}, `{"metadata":{"labels":{"`+wire.TenantNamespaceLabel+`":"true"}}}`)
	for name, c := range map[string]struct {
		object client.Object
		text   string
	}{
		"account elsewhere":          {account(other, "prato", "prato"), onlyAccounts},
		"account in kube-system":     {account("kube-system", "prato", "prato"), onlyAccounts},
		"account in another tenant":  {account(impostor, "prato", "prato"), onlyAccounts},
		"account of another name":    {account(tenant, "other", "prato"), onlyAccounts},
		"account without a label":    {&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "prato"}}, onlyAccounts},
		"account of the consumer":    {account(tenant, wire.ConsumerServiceAccount, wire.ConsumerServiceAccount), otherPods},
		"account of gateways":        {account(tenant, wire.GatewayServiceAccount, wire.GatewayServiceAccount), otherPods},
		"account of all pods":        {account(tenant, "default", "default"), otherPods},
		"cluster role of any name":   {clusterRole(func(r *rbacv1.ClusterRole) { r.Name = "mine" }), onlyRoles},
		"cluster role without label": {clusterRole(func(r *rbacv1.ClusterRole) { r.Name, r.Labels = "liqo-virtual-kubelet-node-", nil }), onlyRoles},
		"aggregated cluster role": {clusterRole(func(r *rbacv1.ClusterRole) {
			r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}
		}), onlyRoles},
		"role of any name":           {role("-tenant-", func(r *rbacv1.Role) { r.Name = "mine" }), onlyRoles},
		"role elsewhere":             {role("-tenant-", func(r *rbacv1.Role) { r.Namespace = other }), onlyRoles},
		"role in another tenant":     {role("-tenant-", func(r *rbacv1.Role) { r.Namespace = impostor }), onlyRoles},
		"role for leases elsewhere":  {role("-lease-", func(r *rbacv1.Role) { r.Namespace = "kube-system" }), onlyRoles},
		"role for reviews elsewhere": {role("-authentication-", func(r *rbacv1.Role) { r.Namespace = other }), onlyRoles},
		"another node":               {clusterRole(func(r *rbacv1.ClusterRole) { r.Rules[0].ResourceNames = []string{"prato", "worker-1"} }), restricted},
		"all nodes":                  {clusterRole(func(r *rbacv1.ClusterRole) { r.Rules[0].ResourceNames = nil }), restricted},
		"deletion of its node":       {clusterRole(func(r *rbacv1.ClusterRole) { r.Rules[0].Verbs = []string{"delete"} }), restricted},
		"pods":                       {clusterRole(func(r *rbacv1.ClusterRole) { r.Rules[0].Resources = []string{"pods"} }), restricted},
		"URLs": {clusterRole(func(r *rbacv1.ClusterRole) {
			r.Rules = []rbacv1.PolicyRule{{NonResourceURLs: []string{"*"}, Verbs: []string{"get"}}}
		}), restricted},
		"VirtualNodes everywhere": {clusterRole(func(r *rbacv1.ClusterRole) {
			r.Rules = role("-tenant-", func(*rbacv1.Role) {}).(*rbacv1.Role).Rules[:1]
		}), restricted},
		"all Secrets":                {addRule("-tenant-", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}), restricted},
		"several Secrets":            {addRule("-tenant-", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: []string{"a", "b"}}), restricted},
		"writing its Secret":         {addRule("-tenant-", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"update"}, ResourceNames: []string{"a"}}), restricted},
		"all leases":                 {addRule("-lease-", rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"update"}}), restricted},
		"lease of another node":      {addRule("-lease-", rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"update"}, ResourceNames: []string{"worker-1"}}), restricted},
		"heartbeat of the consumer":  {addRule("-tenant-", rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"update"}, ResourceNames: []string{wire.HeartbeatLease}}), restricted},
		"election of the provider":   {addRule("-lease-", rule("coordination.k8s.io", "leases", "update", wire.SharedLease)), restricted},
		"lease in kube-system":       {addRule("-authentication-", rule("coordination.k8s.io", "leases", "update", "prato")), restricted},
		"new leases in kube-system":  {addRule("-authentication-", rule("coordination.k8s.io", "leases", "create")), restricted},
		"lease everywhere":           {addClusterRule(rule("coordination.k8s.io", "leases", "update", "prato")), restricted},
		"Secret everywhere":          {addClusterRule(rule("", "secrets", "get", wire.NonceSecret)), restricted},
		"Secret in kube-system":      {addRule("-authentication-", rule("", "secrets", "get", "a")), restricted},
		"ConfigMap everywhere":       {addClusterRule(rule("", "configmaps", "get", rbac.AuthenticationConfigMap)), restricted},
		"VirtualNodes in leases":     {addRule("-lease-", rule("offloading.liqo.io", "virtualnodes", "get")), restricted},
		"status everywhere":          {addClusterRule(rule("offloading.liqo.io", "virtualnodes/status", "patch", "prato")), restricted},
		"other ConfigMaps":           {addRule("-authentication-", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}, ResourceNames: []string{"kubeadm-config"}}), restricted},
		"cluster binding of a user":  {clusterBinding(func(b *rbacv1.ClusterRoleBinding) { b.Subjects = []rbacv1.Subject{rbac.User("eve")} }), onlyItsAccount},
		"cluster binding of several": {clusterBinding(func(b *rbacv1.ClusterRoleBinding) { b.Subjects = append(b.Subjects, b.Subjects[0]) }), onlyItsAccount},
		"cluster binding of nobody":  {clusterBinding(func(b *rbacv1.ClusterRoleBinding) { b.Subjects = nil }), onlyItsAccount},
		"account outside of tenants": {clusterBinding(func(b *rbacv1.ClusterRoleBinding) { b.Subjects[0].Namespace = other }), onlyItsAccount},
		"account of another node":    {clusterBinding(func(b *rbacv1.ClusterRoleBinding) { b.Subjects[0].Name = "other" }), onlyItsAccount},
		"the account of the consumer": {clusterBinding(func(b *rbacv1.ClusterRoleBinding) {
			b.Subjects[0].Name = wire.ConsumerServiceAccount
			labelled(b, wire.ConsumerServiceAccount)
		}), onlyItsAccount},
		"role of another node":      {clusterBinding(func(b *rbacv1.ClusterRoleBinding) { b.RoleRef.Name = "liqo-virtual-kubelet-node-other" }), onlyOwnRoles},
		"Secrets everywhere":        {clusterBinding(func(b *rbacv1.ClusterRoleBinding) { b.RoleRef.Name = "liqo-virtual-kubelet-extended" }), onlyOwnRoles},
		"administrator":             {clusterBinding(func(b *rbacv1.ClusterRoleBinding) { b.RoleRef.Name = "cluster-admin" }), "Forbidden"},
		"binding of a user":         {binding("-tenant-", func(b *rbacv1.RoleBinding) { b.Subjects = []rbacv1.Subject{rbac.User("eve")} }), onlyItsAccount},
		"binding elsewhere":         {binding("-tenant-", func(b *rbacv1.RoleBinding) { b.Namespace = other }), onlyOwnRoles},
		"binding of another tenant": {binding("-tenant-", func(b *rbacv1.RoleBinding) { b.Subjects[0].Namespace = "liqo-tenant-other" }), onlyOwnRoles},
		"role of all namespaces": {binding("-tenant-", func(b *rbacv1.RoleBinding) {
			b.RoleRef.Kind, b.RoleRef.Name = "ClusterRole", "liqo-virtual-kubelet-local"
		}), onlyKnownRoles},
		"administrator of a namespace": {binding("-tenant-", func(b *rbacv1.RoleBinding) {
			b.RoleRef.Kind, b.RoleRef.Name = "ClusterRole", "cluster-admin"
		}), onlyKnownRoles},
		"role of another": {binding("-tenant-", func(b *rbacv1.RoleBinding) {
			b.RoleRef.Name = "liqo-virtual-kubelet-tenant-other"
		}), onlyOwnRoles},
		"leases elsewhere":         {binding("-lease-", func(b *rbacv1.RoleBinding) { b.Namespace = "kube-system" }), onlyOwnRoles},
		"reviews elsewhere":        {binding("-authentication-", func(b *rbacv1.RoleBinding) { b.Namespace = other }), onlyOwnRoles},
		"election of a controller": {lease("kube-system", "kube-controller-manager"), onlyLeases},
		"heartbeat of a node":      {lease("kube-node-lease", "worker-1"), onlyLeases},
		"election of another":      {lease(metav1.NamespaceDefault, "other"), onlyLeases},
	} {
		err := manager.Create(t.Context(), c.object, client.DryRunAll)
		if c.text == "Forbidden" { // the policy for gateways denies it where gateways are enabled
			assert.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
			continue
		}
		assert.ErrorContains(t, err, c.text, name)
	}

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "prato-worker", Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType}}}
	consumer.Create(t, node)
	err := manager.Status().Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"status":{"capacity":{"cpu":"8"}}}`)), client.DryRunAll)
	require.ErrorContains(t, err, "does not write the status of nodes")
	existing := binding("-lease-", func(b *rbacv1.RoleBinding) { b.Name = "prato-existing" })
	consumer.Create(t, existing)
	err = manager.Patch(t.Context(), existing, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`)), client.DryRunAll)
	require.ErrorContains(t, err, onlyItsAccount)
	existingRole := role("-lease-", func(r *rbacv1.Role) { r.Name = "liqo-virtual-kubelet-lease-prato" })
	consumer.Create(t, existingRole)
	err = manager.Patch(t.Context(), existingRole, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`)), client.DryRunAll)
	require.ErrorContains(t, err, onlyRoles)
}

// TestWritersOfVirtualNodesDoNotChooseWhatRuns checks that a user who may write VirtualNodes, but may not grant the
// permissions of virtual kubelets, cannot choose the pods of a virtual kubelet.
func TestWritersOfVirtualNodesDoNotChooseWhatRuns(t *testing.T) {
	peer(t, "massa")
	tenant := wire.TenantNamespace("massa")
	write := rbacv1.PolicyRule{APIGroups: []string{offloading.GroupVersion.Group}, Resources: []string{"virtualnodes"}, Verbs: []string{"create", "patch"}}
	bind := rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, Verbs: []string{"bind"}, ResourceNames: []string{"liqo-virtual-kubelet-local"}}
	for user, rules := range map[string][]rbacv1.PolicyRule{"developer": {write}, "operator": {write, bind}} {
		name := "massa-" + user
		require.NoError(t, consumer.Grant(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, Subjects: []rbacv1.Subject{rbac.User(user)}}))
	}
	const template = `{"spec":{"template":{"spec":{"selector":{},"template":{"spec":{"containers":[{"name":"virtual-kubelet","image":"registry.example/mine:1"}]}}}}}}`
	stored := createAsLiqoctl(t, "massa", "massa-stored")
	consumer.Patch(t, stored, template)
	vn := createAsLiqoctl(t, "massa", "massa")
	for user, texts := range map[string][]string{
		"developer": {"spec.template decides what runs", "spec.vkOptionsTemplateRef decides what runs", "spec.vkOptionsTemplateRef decides what runs"},
		"operator":  {"", "", ""},
	} {
		writer := as(t, user)
		controllertest.Eventually(t, "the permissions of "+user, func() error {
			return writer.Patch(t.Context(), vn.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{}`)), client.DryRunAll)
		})
		for i, patch := range []string{
			template, `{"spec":{"vkOptionsTemplateRef":{"namespace":"` + tenant + `","name":"mine"}}}`, `{"spec":{"vkOptionsTemplateRef":{"name":"mine"}}}`,
		} {
			errs := []error{writer.Patch(t.Context(), vn.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)}
			created := vn.DeepCopy()
			created.ObjectMeta = metav1.ObjectMeta{Namespace: tenant, Name: "massa-new", Labels: vn.Labels}
			switch i {
			case 0:
				created.Spec.Template = &offloading.DeploymentTemplate{}
				created.Spec.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "virtual-kubelet", Image: "registry.example/mine:1"}}
			case 1:
				created.Spec.VkOptionsTemplateRef = &corev1.ObjectReference{Namespace: tenant, Name: "mine"}
			default:
				created.Spec.VkOptionsTemplateRef = &corev1.ObjectReference{Name: "mine"}
			}
			for _, err := range append(errs, writer.Create(t.Context(), created, client.DryRunAll)) {
				if texts[i] == "" {
					assert.NoError(t, err, "%s: %s", user, patch)
					continue
				}
				assert.ErrorContains(t, err, texts[i], "%s: %s", user, patch)
			}
		}
		for _, patch := range []string{`{"spec":{"vkOptionsTemplateRef":{"namespace":"default","name":"other"}}}`, `{"spec":{"labels":{"a":"b"}}}`, `{"spec":{"createNode":false}}`} {
			assert.NoError(t, writer.Patch(t.Context(), vn.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll), "%s: %s", user, patch)
		}
		assert.NoError(t, writer.Patch(t.Context(), stored.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"labels":{"a":"b"}}}`)), client.DryRunAll), "a template that is stored stays")
		assert.NoError(t, writer.Patch(t.Context(), stored.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"template":null}}`)), client.DryRunAll), "a template may be removed")
	}
}
