// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/podscheduling"
	"github.com/refract-project/refract/controllers/quota"
	"github.com/refract-project/refract/internal/rbac"
)

var cases = []string{"provider", "pair", "consumer", "authentication"}

func TestLintIsClean(t *testing.T) {
	for _, name := range cases {
		t.Run(name, func(t *testing.T) {
			for _, message := range lint.RunAll(chartDir, util.CoalesceTables(values(t, name), images()), releaseNamespace).Messages {
				if message.Severity > support.InfoSev {
					t.Error(message)
				}
			}
		})
	}
}

func TestEveryObjectDecodesStrictlyAndIsLabelled(t *testing.T) {
	for _, name := range cases {
		t.Run(name, func(t *testing.T) {
			all := objects(t, values(t, name))
			if len(all) == 0 {
				t.Fatal("nothing was rendered")
			}
			seen := map[string]bool{}
			for _, object := range all {
				id := fmt.Sprintf("%T %s", object, client.ObjectKeyFromObject(object))
				if seen[id] {
					t.Errorf("%s is rendered twice", id)
				}
				seen[id] = true
				if object.GetLabels()["liqo.io/managed"] != "true" || object.GetLabels()["app.kubernetes.io/instance"] != releaseName {
					t.Errorf("%s lacks the labels of the chart: %v", id, object.GetLabels())
				}
			}
		})
	}
}

// TestRolesAreThoseOfPackageRBAC checks that the chart and package rbac grant the same permissions, so that users
// install the permissions with which the tests run.
func TestRolesAreThoseOfPackageRBAC(t *testing.T) {
	kubelet := func(name string) []rbac.Object {
		subject := rbac.ServiceAccount("liqo-tenant-milan", name)
		return rbac.Kubelet{NodeName: name, TenantNamespace: "liqo-tenant-milan", KubeconfigSecret: "kubeconfig-milan", Subject: subject, Plugins: true}.Objects()
	}
	consumer := rbac.Peer("", "rome")
	manager := rbac.Manager{Namespace: releaseNamespace, Subject: rbac.ServiceAccount(releaseNamespace, "refract-controller-manager")}
	want := slices.Concat(
		kubelet("milan"), kubelet("milan-gpu"),
		consumer.Objects(),
		[]rbac.Object{consumer.TenantNamespace("liqo-tenant-rome")},
		manager.Objects(),
		manager.Provider("liqo-tenant-milan", "kubeconfig-milan"),
		manager.Probe("liqo-tenant-rome"), manager.VirtualNodes(), manager.ServingCertificates(), manager.NodeFailure(), manager.ResourceOffers(), manager.TenantAccess(), manager.GrantedKinds(), manager.ResourceRequests(), manager.Plugins(),
		manager.Addresses(),
	)
	expected, rendered := grants(want), map[string]any{}
	given := values(t, "pair")
	given["networking"] = map[string]any{"addresses": map[string]any{"enabled": true}}
	for _, object := range objects(t, given) {
		if grant := grantOf(object); grant != nil {
			rendered[key(object)] = grant
		}
	}
	if diff := cmp.Diff(expected, rendered); diff != "" {
		t.Errorf("package rbac (-) and the chart (+) differ:\n%s", diff)
	}
}

// grantsAmong returns the rendered roles and bindings that have the name of one in want.
func grantsAmong(rendered []client.Object, want map[string]any) map[string]any {
	found := map[string]any{}
	for _, object := range rendered {
		if _, ok := want[key(object)]; ok {
			found[key(object)] = grantOf(object)
		}
	}
	return found
}

// TestKubeletAccounts checks that the controller manager may create ServiceAccounts of virtual kubelets only if the
// values say so, and only under the policies.
func TestKubeletAccounts(t *testing.T) {
	manager := rbac.Manager{Namespace: releaseNamespace, Subject: rbac.ServiceAccount(releaseNamespace, "refract-controller-manager")}
	want := grants(manager.KubeletAccounts())
	for _, enabled := range []bool{true, false} {
		given := values(t, "pair")
		given["offloading"] = map[string]any{"createServiceAccounts": enabled}
		rendered := objects(t, given)
		found := grantsAmong(rendered, want)
		args := get[*appsv1.Deployment](t, rendered, "refract-controller-manager").Spec.Template.Spec.Containers[0].Args
		policies := slices.ContainsFunc(rendered, func(object client.Object) bool { return object.GetName() == "refract-controller-manager-kubelet-roles" })
		assert.Equal(t, enabled, slices.Contains(args, "--create-service-accounts"))
		assert.Equal(t, enabled, policies)
		if !enabled {
			assert.Empty(t, found)
			continue
		}
		assert.Equal(t, want, found)
		assert.Contains(t, args, "--role-prefix=liqo")
		given["tenants"] = map[string]any{"admissionPolicies": false}
		_, err := render(t, given)
		assert.ErrorContains(t, err, "offloading.createServiceAccounts needs tenants.admissionPolicies")
	}
}

// TestProvidersAreJoined checks that the controller manager has the permissions to join providers by Liqo's protocol only
// if the values say so, and only under the policies. They include those to create the ServiceAccounts of the virtual
// kubelets.
func TestProvidersAreJoined(t *testing.T) {
	manager := rbac.Manager{Namespace: releaseNamespace, Subject: rbac.ServiceAccount(releaseNamespace, "refract-controller-manager")}
	want := grants(slices.Concat(manager.Identities(), manager.KubeletAccounts()))
	for _, enabled := range []bool{true, false} {
		given := values(t, "pair")
		given["authentication"] = map[string]any{"joinProviders": enabled}
		rendered := objects(t, given)
		found := grantsAmong(rendered, want)
		args := get[*appsv1.Deployment](t, rendered, "refract-controller-manager").Spec.Template.Spec.Containers[0].Args
		has := func(name string) bool {
			return slices.ContainsFunc(rendered, func(object client.Object) bool { return object.GetName() == name })
		}
		assert.Equal(t, enabled, slices.Contains(args, "--join-providers"))
		assert.Equal(t, enabled, slices.Contains(args, "--create-service-accounts"))
		assert.Equal(t, enabled, has("refract-controller-manager-kubeconfigs"), "the policy")
		assert.Equal(t, enabled, has(wire.ClusterKeySecret))
		if !enabled {
			assert.Empty(t, found)
			continue
		}
		assert.Equal(t, want, found)
		for remedy, change := range map[string]map[string]any{
			"needs tenants.admissionPolicies": {"tenants": map[string]any{"admissionPolicies": false}},
			"needs offloading.enabled":        {"offloading": map[string]any{"enabled": false}, "virtualKubelets": []any{}},
			"Leave one of them false":         {"adoptLiqo": true},
		} {
			refused := values(t, "pair")
			refused["authentication"] = map[string]any{"joinProviders": true}
			maps.Copy(refused, change)
			_, err := render(t, refused)
			assert.ErrorContains(t, err, remedy)
		}
	}
}

// TestKindsThatAProviderDoesNotTake checks that a provider that isolates remote namespaces itself, or must be able to
// drain its nodes at any time, does not permit consumers to create NetworkPolicies or PodDisruptionBudgets.
func TestKindsThatAProviderDoesNotTake(t *testing.T) {
	for value, resource := range map[string]string{"networkPolicies": "networkpolicies", "podDisruptionBudgets": "poddisruptionbudgets"} {
		for _, granted := range []bool{true, false} {
			given := values(t, "pair")
			given["tenants"] = map[string]any{value: granted}
			role := get[*rbacv1.ClusterRole](t, objects(t, given), "liqo-virtual-kubelet-remote")
			has := slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, resource) })
			assert.Equal(t, granted, has, "tenants.%s: %t", value, granted)
			assert.True(t, slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "ingresses") }), "all else stays")
		}
	}
}

// TestRolesAreReadOnlyToLimitKinds checks that the controller manager may read roles only if it limits the numbers of
// consumers' objects. It reads the roles because they show which kinds were granted to consumers.
func TestRolesAreReadOnlyToLimitKinds(t *testing.T) {
	for count, read := range map[int]bool{1000: true, 1: true, 0: false} {
		given := values(t, "pair")
		given["tenants"] = map[string]any{"defaultObjectCount": count}
		var roles, bindings []string
		for _, object := range objects(t, given) {
			switch object := object.(type) {
			case *rbacv1.ClusterRoleBinding:
				bindings = append(bindings, object.RoleRef.Name)
			case *rbacv1.ClusterRole:
				if slices.ContainsFunc(object.Rules, func(rule rbacv1.PolicyRule) bool {
					return slices.Contains(rule.APIGroups, rbacv1.GroupName) && slices.Contains(rule.Resources, "roles") && slices.Contains(rule.Verbs, "get")
				}) {
					roles = append(roles, object.Name)
				}
			}
		}
		const name = "liqo-controller-manager-granted-kinds"
		assert.Equal(t, read, slices.Contains(bindings, name), "bound with tenants.defaultObjectCount: %d", count)
		if read {
			assert.Equal(t, []string{name}, roles)
		} else {
			assert.Empty(t, roles)
		}
	}
}

func grants(objects []rbac.Object) map[string]any {
	all := map[string]any{}
	for _, object := range objects {
		all[key(object)] = grantOf(object)
	}
	return all
}

func key(object rbac.Object) string {
	return fmt.Sprintf("%T %s/%s", object, object.GetNamespace(), object.GetName())
}

// grantOf returns the rules of a role, or the subjects and role of a binding. It returns nil for other objects.
func grantOf(object rbac.Object) any {
	type binding struct {
		Role     rbacv1.RoleRef
		Subjects []rbacv1.Subject
	}
	switch o := object.(type) {
	case *rbacv1.ClusterRole:
		return o.Rules
	case *rbacv1.Role:
		return o.Rules
	case *rbacv1.ClusterRoleBinding:
		return binding{o.RoleRef, o.Subjects}
	case *rbacv1.RoleBinding:
		return binding{o.RoleRef, o.Subjects}
	}
	return nil
}

// TestConsumerWithoutManager checks that if no controller manager binds the role of virtual kubelets in each
// offloaded namespace, the chart binds it in all namespaces.
func TestConsumerWithoutManager(t *testing.T) {
	vals := values(t, "consumer")
	all := objects(t, vals)
	for name, namespace := range map[string]string{"milan": "liqo-tenant-milan", "turin": "turin"} {
		binding := get[*rbacv1.ClusterRoleBinding](t, all, "refract-virtual-kubelet-extended-"+name)
		subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		if binding.RoleRef.Name != "refract-virtual-kubelet-extended" || !slices.Equal(binding.Subjects, []rbacv1.Subject{subject}) {
			t.Errorf("%s binds %+v to %+v", binding.Name, binding.RoleRef, binding.Subjects)
		}
	}
	vals["controllerManager"] = map[string]any{"enabled": true}
	manager := get[*appsv1.Deployment](t, objects(t, vals), releaseName+"-controller-manager").Spec.Template.Spec.Containers[0]
	if !slices.Contains(manager.Args, "--extended-cluster-role=") {
		t.Errorf("the controller manager binds a role that is bound everywhere: %q", manager.Args)
	}
	vals["controllerManager"], vals["offloading"] = map[string]any{"enabled": false}, map[string]any{}
	mustFail(t, vals, "Set controllerManager.enabled=true")
	vals["virtualKubelets"] = []any{}
	if _, err := render(t, vals); err != nil {
		t.Errorf("without virtual kubelets: %v", err)
	}
}

func TestRolePrefixIsAValue(t *testing.T) {
	vals := values(t, "pair")
	vals["rolePrefix"] = "acme"
	for _, object := range objects(t, vals) {
		if grantOf(object) != nil && !strings.HasPrefix(object.GetName(), "acme-") {
			t.Errorf("%T %s does not bear the prefix", object, object.GetName())
		}
	}
}

// TestLiqoFindsTheControllerManager checks that Liqo's tools find exactly one Deployment of a controller manager by
// its labels, and can read its version and settings.
func TestLiqoFindsTheControllerManager(t *testing.T) {
	found := func(vals map[string]any) (names []string) {
		for _, object := range objects(t, vals) {
			labels := object.GetLabels()
			if deployment, ok := object.(*appsv1.Deployment); ok && labels["app.kubernetes.io/name"] == "controller-manager" && labels["app.kubernetes.io/component"] == "controller-manager" {
				require.Equal(t, "controller-manager", deployment.Spec.Template.Spec.Containers[0].Name)
				names = append(names, deployment.Name)
			}
		}
		return names
	}
	for _, name := range []string{"provider", "pair", "authentication"} {
		require.Equal(t, []string{"refract-controller-manager"}, found(values(t, name)), name)
	}
	beside := values(t, "pair")
	beside["adoptLiqo"] = true
	require.Empty(t, found(beside), "Liqo's tools take a second one for an error")
}

// TestLiqoFindsTheRolesOfPeeringUsers checks that liqoctl generate peering-user finds exactly one Role and one
// ClusterRole to bind, by the label of their component. Neither may exist if peering users are disabled, or if Tenants
// are not reconciled.
func TestLiqoFindsTheRolesOfPeeringUsers(t *testing.T) {
	found := func(vals map[string]any) (names []string) {
		for _, object := range objects(t, vals) {
			if object.GetLabels()["app.kubernetes.io/component"] == rbac.PeeringUserComponent {
				names = append(names, fmt.Sprintf("%T %s", object, object.GetName()))
			}
		}
		return names
	}
	vals := values(t, "authentication")
	require.Empty(t, found(vals), "they read Secrets of the tenant namespace")
	vals["authentication"].(map[string]any)["peeringUsers"] = true
	require.ElementsMatch(t, []string{"*v1.ClusterRole liqo-peering-user-tenant-ns", "*v1.Role liqo-peering-user-liqo-ns"}, found(vals))
	pair := values(t, "pair")
	pair["authentication"] = map[string]any{"peeringUsers": true}
	require.Empty(t, found(pair))
}

// TestLiqoFindsTheClusterID checks that the chart creates the ConfigMap with the cluster ID, with the label by which
// Liqo's tools find it.
func TestLiqoFindsTheClusterID(t *testing.T) {
	for _, name := range []string{"provider", "pair", "authentication"} {
		id := get[*corev1.ConfigMap](t, objects(t, values(t, name)), releaseName+"-clusterid-configmap")
		if id.Labels["app.kubernetes.io/name"] != "clusterid-configmap" || id.Data["CLUSTER_ID"] != "home" {
			t.Errorf("%s: liqoctl does not find the cluster id: %+v", name, id)
		}
	}
	beside := values(t, "pair")
	beside["adoptLiqo"] = true
	for _, object := range objects(t, beside) {
		if object.GetLabels()["app.kubernetes.io/name"] == "clusterid-configmap" {
			t.Errorf("%s is there in addition to Liqo's", key(object))
		}
	}
}

// TestAuthentication checks that a provider that admits consumers with Liqo has the objects these consumers look for,
// and the permissions to admit them. All other providers must have neither these objects nor the permissions.
func TestAuthentication(t *testing.T) {
	vals := values(t, "authentication")
	vals["authentication"].(map[string]any)["peeringUsers"] = true
	all := objects(t, vals)
	rendered := map[string]any{}
	for _, object := range all {
		rendered[key(object)] = grantOf(object)
	}
	manager := rbac.Manager{Namespace: releaseNamespace, Subject: rbac.ServiceAccount(releaseNamespace, releaseName+"-controller-manager")}
	rights := grants(slices.Concat(manager.Authentication(), manager.PeeringUsers(), manager.ResourceSlices()))
	for key, grant := range rights {
		if diff := cmp.Diff(grant, rendered[key]); diff != "" {
			t.Errorf("%s: package rbac (-) and the chart (+) differ:\n%s", key, diff)
		}
	}
	arguments := get[*appsv1.Deployment](t, all, releaseName+"-controller-manager").Spec.Template.Spec.Containers[0].Args
	for _, want := range []string{
		"--authentication-enabled", "--role-prefix=liqo", "--api-server-address-override=api.example.com:6443", "--tenant-max-resources=cpu=16,memory=64Gi",
		"--ingress-classes=nginx;default,traefik", "--load-balancer-classes=public", "--enable-storage=true", "--real-storage-class-name=fast", "--cluster-labels=topology.kubernetes.io/zone=eu-1",
	} {
		if !slices.Contains(arguments, want) {
			t.Errorf("%s is missing in %q", want, arguments)
		}
	}
	tenants := vals["tenants"].(map[string]any)
	delete(tenants, "maxResources")
	mustFail(t, vals, "tenants.maxResources is empty")
	tenants["unlimitedResources"] = true
	objects(t, vals)
	vals["adoptLiqo"] = true
	mustFail(t, vals, "Leave one of them false")

	for _, object := range objects(t, values(t, "provider")) {
		if _, is := rights[key(object)]; is {
			t.Errorf("%s is installed where nobody asked for it", key(object))
		}
	}
}

// TestOffers checks that a provider publishes offers to consumers unless the administrator disables it, and does so
// without the permission to sign certificates.
func TestOffers(t *testing.T) {
	const role = "liqo-controller-manager-resource-offers"
	arguments := func(vals map[string]any) []string {
		return get[*appsv1.Deployment](t, objects(t, vals), releaseName+"-controller-manager").Spec.Template.Spec.Containers[0].Args
	}
	vals := values(t, "provider")
	vals["discovery"].(map[string]any)["config"].(map[string]any)["clusterLabels"] = map[string]any{"topology.kubernetes.io/zone": "eu-1"}
	assert.Subset(t, arguments(vals), []string{"--resource-offers", "--enable-storage=false", "--cluster-labels=topology.kubernetes.io/zone=eu-1"})
	assert.NotContains(t, arguments(vals), "--authentication-enabled")
	get[*rbacv1.ClusterRole](t, objects(t, vals), role)
	tenants, _ := vals["tenants"].(map[string]any)
	if tenants == nil {
		tenants = map[string]any{}
		vals["tenants"] = tenants
	}
	tenants["offers"] = false
	assert.NotContains(t, arguments(vals), "--resource-offers")
	for _, object := range objects(t, vals) {
		assert.NotEqual(t, role, object.GetName())
	}
}

// TestAcceptedOfferLabels checks that a consumer accepts labels in a provider's offer only if the values of the
// consumer's chart allow them.
func TestAcceptedOfferLabels(t *testing.T) {
	arguments := func(vals map[string]any) []string {
		return get[*appsv1.Deployment](t, objects(t, vals), releaseName+"-controller-manager").Spec.Template.Spec.Containers[0].Args
	}
	offloading := map[string]any{}
	vals := map[string]any{"discovery": map[string]any{"config": map[string]any{"clusterID": "home"}}, "offloading": offloading}
	assert.Contains(t, arguments(vals), "--accepted-offer-labels=")
	offloading["acceptedOfferLabels"] = []any{"topology.kubernetes.io/*", "tier=gold"}
	assert.Contains(t, arguments(vals), "--accepted-offer-labels=topology.kubernetes.io/*,tier=gold")
	offloading["acceptedOfferLabels"] = []any{"a b"}
	mustFail(t, vals, "acceptedOfferLabels")
}

// TestBesideLiqo checks that the chart does not install objects that the chart of Liqo has already installed.
func TestBesideLiqo(t *testing.T) {
	vals := values(t, "pair")
	vals["adoptLiqo"] = true
	for _, object := range objects(t, vals) {
		switch object := object.(type) {
		case *nodev1.RuntimeClass, *storagev1.StorageClass:
			t.Errorf("%T %s is Liqo's", object, object.GetName())
		}
		if grantOf(object) != nil && !strings.HasPrefix(object.GetName(), "refract-") {
			t.Errorf("%T %s does not bear the prefix", object, object.GetName())
		}
	}
	manager := get[*appsv1.Deployment](t, objects(t, vals), "refract-controller-manager").Spec.Template.Spec.Containers[0]
	if !slices.Contains(manager.Args, "--leader-election-id="+rbac.BesideLiqoElectionID) {
		t.Errorf("the controller manager competes with Liqo's for a lease: %q", manager.Args)
	}
	if !slices.Contains(manager.Args, "--resource-slice-quotas") {
		t.Errorf("nobody creates the Quotas of ResourceSlices: %q", manager.Args)
	}
	rendered := map[string]any{}
	for _, object := range objects(t, vals) {
		rendered[key(object)] = grantOf(object)
	}
	resourceSlices := rbac.Manager{Prefix: "refract", Subject: rbac.ServiceAccount(releaseNamespace, "refract-controller-manager")}.ResourceSlices()
	for key, grant := range grants(resourceSlices) {
		if diff := cmp.Diff(grant, rendered[key]); diff != "" {
			t.Errorf("%s: package rbac (-) and the chart (+) differ:\n%s", key, diff)
		}
	}
	vals["rolePrefix"] = "acme"
	for _, object := range objects(t, vals) {
		if grantOf(object) != nil && !strings.HasPrefix(object.GetName(), "acme-") {
			t.Errorf("%T %s does not bear the prefix that was asked for", object, object.GetName())
		}
	}
}

func TestVirtualNodeMergesValues(t *testing.T) {
	spec := get[*offloadingv1beta1.VirtualNode](t, objects(t, values(t, "pair")), "milan").Spec
	if spec.ClusterID != "milan" || spec.KubeconfigSecretRef.Name != "kubeconfig-milan" || !*spec.CreateNode || *spec.DisableNetworkCheck {
		t.Errorf("unexpected spec: %+v", spec)
	}
	if diff := cmp.Diff(map[string]string{"zone": "eu", "tier": "bronze"}, spec.Labels); diff != "" {
		t.Errorf("the entry's labels win over those of all virtual nodes (-want +got):\n%s", diff)
	}
	wantQuota := corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi")}
	if diff := cmp.Diff(wantQuota, spec.ResourceQuota.Hard); diff != "" {
		t.Errorf("quota (-want +got):\n%s", diff)
	}
	patch := spec.OffloadingPatch
	if diff := cmp.Diff([]string{"internal"}, patch.LabelsNotReflected); diff != "" {
		t.Errorf("labels not reflected (-want +got):\n%s", diff)
	}
	if patch.NodeSelector["disk"] != "ssd" {
		t.Errorf("the patch lacks the entry's selector: %+v", patch)
	}
	template := get[*offloadingv1beta1.VkOptionsTemplate](t, objects(t, values(t, "pair")), releaseName+"-virtual-kubelet-default")
	if len(template.Spec.AnnotationsNotReflected) != 21 {
		t.Errorf("the template lacks the chart's list: %+v", template.Spec)
	}
}

// TestVirtualKubeletsOfTheirOwnSettings checks that a virtual kubelet with its own settings has its own template, and
// that all other virtual kubelets share one template.
func TestVirtualKubeletsOfTheirOwnSettings(t *testing.T) {
	all := deployed(t, values(t, "pair"))
	own, shared := get[*appsv1.Deployment](t, all, "vk-milan"), get[*appsv1.Deployment](t, all, "vk-milan-gpu")
	const flag = "--node-ping-interval=5s"
	if args := own.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, flag) || !slices.Contains(args, "--plugin-dir=/plugins") {
		t.Errorf("of the first: %q", args)
	}
	if args := shared.Spec.Template.Spec.Containers[0].Args; slices.Contains(args, flag) {
		t.Errorf("of the second: %q", args)
	}
	pod := own.Spec.Template.Spec
	if pod.NodeSelector["kubernetes.io/os"] != "linux" || pod.PriorityClassName != "system-cluster-critical" || len(pod.Tolerations) != 1 || pod.ServiceAccountName != "milan" || *own.Spec.Replicas != 2 {
		t.Errorf("the pod is %+v", pod)
	}
	get[*policyv1.PodDisruptionBudget](t, all, "vk-milan")
	get[*policyv1.PodDisruptionBudget](t, all, releaseName+"-controller-manager")
}

func TestVirtualKubeletFollowsItsValues(t *testing.T) {
	all := deployed(t, values(t, "consumer"))
	arguments := get[*appsv1.Deployment](t, all, "vk-milan").Spec.Template.Spec.Containers[0].Args
	for _, want := range []string{"--disable-ip-reflection", "--secret-reflection-workers=5", "--secret-reflection-type=AllowList", "--event-reflection-workers=0",
		"--event-reflection-type=DenyList", "--persistentvolumeclaim-reflection-workers=3", "--home-api-server-host=api.home.example.com",
		"--home-api-server-port=6443", "--enable-storage", "--virtual-storage-class-name=refract", "--remote-real-storage-class-name=fast",
		"--node-check-network=false", "--home-cluster-id=home", "--role-prefix=refract", "--tenant-namespace=liqo-tenant-milan"} {
		if !slices.Contains(arguments, want) {
			t.Errorf("%s is missing in %q", want, arguments)
		}
	}
	if namespace := get[*appsv1.Deployment](t, all, "vk-turin").Namespace; namespace != "turin" {
		t.Errorf("vk-turin is in %q, want the namespace of its entry", namespace)
	}
}

// TestAPIServerSupport checks that offloaded pods may use the consumer's API server unless extra arguments disable this
// for all virtual kubelets or for a single one, and that the virtual kubelets may request ServiceAccount tokens only if
// the support is enabled in a mode that needs them.
func TestAPIServerSupport(t *testing.T) {
	const flag, mode = "--enable-apiserver-support", "--apiserver-support-mode"
	given := func(all, one []any) (found []string, mayRequest bool) {
		t.Helper()
		entry := map[string]any{"name": "milan", "clusterID": "milan", "kubeconfigSecretName": "s", "extraArgs": one}
		rendered := deployed(t, map[string]any{"discovery": map[string]any{"config": map[string]any{"clusterID": "rome"}},
			"virtualKubelets": []any{entry}, "virtualKubelet": map[string]any{"extra": map[string]any{"args": all}}})
		for _, argument := range get[*appsv1.Deployment](t, rendered, "vk-milan").Spec.Template.Spec.Containers[0].Args {
			if strings.HasPrefix(argument, flag) {
				found = append(found, argument)
			}
		}
		for _, rule := range get[*rbacv1.ClusterRole](t, rendered, "liqo-virtual-kubelet-extended").Rules {
			mayRequest = mayRequest || slices.Contains(rule.Resources, "serviceaccounts/token")
		}
		return found, mayRequest
	}
	for _, test := range []struct {
		all, one []any
		want     string
	}{
		{nil, nil, flag + "=true"},
		{[]any{"--v=4"}, nil, flag + "=true"},
		{[]any{"--v=4", flag + "=false"}, nil, flag + "=false"},
		{nil, []any{flag + "=false"}, flag + "=false"},
		{nil, []any{flag}, flag},
		{nil, []any{mode + "=Legacy"}, flag + "=true"},
		{[]any{mode + "=Legacy"}, []any{mode + "=auto"}, flag + "=true"},
		{[]any{mode + "=TokenAPI"}, nil, flag + "=true"},
	} {
		got, mayRequest := given(test.all, test.one)
		legacy := slices.Equal(append(slices.Clone(test.all), test.one...), []any{mode + "=Legacy"})
		if want := test.want != flag+"=false" && !legacy; mayRequest != want {
			t.Errorf("with %v and %v the right to request tokens is granted: %t, want %t", test.all, test.one, mayRequest, want)
		}
		if !slices.Equal(got, []string{test.want}) {
			t.Errorf("%v and %v give %q, want %q", test.all, test.one, got, test.want)
		}
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	with := func(key string, value any) map[string]any {
		changed := map[string]any{"name": "milan", "clusterID": "milan", "kubeconfigSecretName": "s", key: value}
		return map[string]any{"virtualKubelets": []any{changed}}
	}
	mustFail(t, map[string]any{}, "discovery.config.clusterID is required")
	cluster := map[string]any{"config": map[string]any{"clusterID": "rome"}}
	mustFail(t, map[string]any{"discovery": cluster, "controllerManager": map[string]any{"image": map[string]any{"name": ""}}}, "controllerManager.image.name is required")
	mustFail(t, with("clusterID", "Milan"), "clusterID")
	mustFail(t, with("kubeconfig", "s"), "kubeconfig")
	mustFail(t, with("extraArgs", []any{"verbose"}), "extraArgs")
	mustFail(t, map[string]any{"offloading": map[string]any{"reflection": map[string]any{"service": map[string]any{"type": "Deny"}}}}, "service")
	for kind, value := range map[string]any{"job": map[string]any{"workers": 1}, "endpointslice": map[string]any{"type": "AllowList"}, "secret": map[string]any{"worker": 1}} {
		mustFail(t, map[string]any{"offloading": map[string]any{"reflection": map[string]any{kind: value}}}, "additional properties")
	}
	mustFail(t, map[string]any{"storage": map[string]any{"enable": true}}, "additional properties")
	mustFail(t, map[string]any{"offloading": map[string]any{"homeAPIServer": map[string]any{"address": "a"}}}, "additional properties")
	mustFail(t, map[string]any{"virtualKubelet": map[string]any{"replicas": "two"}}, "replicas")
	mustFail(t, map[string]any{"controllerManager": map[string]any{"config": map[string]any{"defaultLimitsEnforcement": "strict"}}}, "defaultLimitsEnforcement")
	for _, path := range [][]string{{"quotas"}, {"controllerManager", "quotas"}, {"controllerManager", "config", "foreignClusterPingInterval"}, {"webhook", "replicas"}, {"networking", "gateway"}, {"virtualKubelet", "extra", "quota"}} {
		unknown := map[string]any{path[len(path)-1]: true}
		for _, key := range slices.Backward(path[:len(path)-1]) {
			unknown = map[string]any{key: unknown}
		}
		mustFail(t, unknown, "additional properties")
	}
	mustFail(t, map[string]any{"webhook": map[string]any{"failurePolicy": "ignore"}}, "failurePolicy")
}

func TestNotesNameEveryVirtualNode(t *testing.T) {
	rendered, err := render(t, values(t, "consumer"))
	require.NoError(t, err)
	notes := rendered["refract/templates/NOTES.txt"]
	for _, want := range []string{"kubectl -n liqo-tenant-milan rollout status deployment/vk-milan", "kubectl get node turin"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes lack %q:\n%s", want, notes)
		}
	}
	if strings.Contains(notes, "ForeignCluster") {
		t.Errorf("the notes speak of ForeignClusters, which consumers do without:\n%s", notes)
	}
}

// TestVirtualKubeletsAreLabelled checks that virtual kubelets have the labels by which reflection and users select
// them.
func TestVirtualKubeletsAreLabelled(t *testing.T) {
	labels := get[*appsv1.Deployment](t, deployed(t, values(t, "consumer")), "vk-turin").Spec.Template.Labels
	for key, want := range map[string]string{
		wire.ComponentLabel: wire.VirtualKubeletComponent, wire.VirtualNodeLabel: "turin", wire.RemoteClusterIDLabel: "turin",
	} {
		if labels[key] != want {
			t.Errorf("%s is %q, want %q", key, labels[key], want)
		}
	}
}

// TestWebhookAsksAboutThePodsThatItIsFor checks that the chart installs the same webhook configuration that tests and
// the demo use.
func TestWebhookAsksAboutThePodsThatItIsFor(t *testing.T) {
	vals := values(t, "provider")
	vals["webhook"] = map[string]any{"failurePolicy": "Fail", "port": 10443}
	all := objects(t, vals)
	path := podscheduling.Path
	client := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: releaseNamespace, Name: rbac.WebhookName, Path: &path,
	}}
	want := podscheduling.Configuration(rbac.WebhookName, releaseNamespace, client, admissionregistrationv1.Fail)
	quotaPath := quota.Path
	quotas := client.DeepCopy()
	quotas.Service.Path = &quotaPath
	want.Webhooks = append(want.Webhooks, quota.Configuration(*quotas, admissionregistrationv1.Fail))
	got := get[*admissionregistrationv1.MutatingWebhookConfiguration](t, all, rbac.WebhookName)
	if diff := cmp.Diff(want.Webhooks, got.Webhooks); diff != "" {
		t.Errorf("packages podscheduling and quota (-) and the chart (+) differ:\n%s", diff)
	}
	service := get[*corev1.Service](t, all, rbac.WebhookName)
	pod := get[*appsv1.Deployment](t, all, releaseName+"-controller-manager").Spec.Template
	port := slices.IndexFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == service.Spec.Ports[0].TargetPort.StrVal })
	if port < 0 || pod.Spec.Containers[0].Ports[port].ContainerPort != 10443 || !slices.Contains(pod.Spec.Containers[0].Args, "--webhook-port=10443") {
		t.Errorf("the Service leads to %v, the pod has %+v", service.Spec.Ports, pod.Spec.Containers[0])
	}
	for key, value := range service.Spec.Selector {
		if pod.Labels[key] != value {
			t.Errorf("the Service selects %s=%s, the pod has %v", key, value, pod.Labels)
		}
	}
	get[*corev1.Secret](t, all, rbac.WebhookName)

	vals["webhook"] = map[string]any{"enabled": false}
	for _, object := range objects(t, vals) {
		if object.GetName() == rbac.WebhookName {
			t.Errorf("%T %s is installed for a webhook that is off", object, object.GetName())
		}
	}
}

// TestWebhookAsksForCertificates checks that the webhook requires client certificates from API servers if a CA for
// them is configured.
func TestWebhookAsksForCertificates(t *testing.T) {
	vals := values(t, "provider")
	manager := func() corev1.PodSpec {
		return get[*appsv1.Deployment](t, objects(t, vals), releaseName+"-controller-manager").Spec.Template.Spec
	}
	const flag = "--webhook-client-ca-file=/etc/refract/webhook-client-ca/ca.crt"
	assert.NotContains(t, manager().Containers[0].Args, flag)
	vals["webhook"] = map[string]any{"clientCAConfigMapName": "callers"}
	pod := manager()
	assert.Contains(t, pod.Containers[0].Args, flag)
	require.Len(t, pod.Volumes, 1)
	assert.Equal(t, "callers", pod.Volumes[0].ConfigMap.Name)
	assert.Equal(t, pod.Volumes[0].Name, pod.Containers[0].VolumeMounts[0].Name)
	assert.Equal(t, "/etc/refract/webhook-client-ca", pod.Containers[0].VolumeMounts[0].MountPath)
	vals["webhook"].(map[string]any)["enabled"] = false
	assert.Empty(t, manager().Volumes)
}

func TestRuntimeClassLeadsToVirtualNodes(t *testing.T) {
	vals := values(t, "provider")
	class := get[*nodev1.RuntimeClass](t, objects(t, vals), wire.RuntimeClassName)
	taint := corev1.Toleration{Key: wire.VirtualNodeTaint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if class.Scheduling.NodeSelector[wire.TypeLabel] != wire.VirtualNodeType || !slices.Equal(class.Scheduling.Tolerations, []corev1.Toleration{taint}) {
		t.Errorf("scheduling = %+v", class.Scheduling)
	}
	vals["offloading"] = map[string]any{"runtimeClass": map[string]any{"name": ""}}
	for _, object := range objects(t, vals) {
		if _, ok := object.(*nodev1.RuntimeClass); ok {
			t.Errorf("RuntimeClass %s is installed without a name", object.GetName())
		}
	}
}

func TestStorageClassWaitsForItsFirstPod(t *testing.T) {
	vals := values(t, "pair")
	for _, object := range objects(t, vals) {
		if _, ok := object.(*storagev1.StorageClass); ok {
			t.Errorf("StorageClass %s is installed unasked", object.GetName())
		}
	}
	vals["storage"] = map[string]any{"enabled": true, "virtualStorageClassName": "lent", "reclaimPolicy": "Retain"}
	class := get[*storagev1.StorageClass](t, objects(t, vals), "lent")
	if class.Provisioner != wire.StorageProvisioner || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer ||
		!*class.AllowVolumeExpansion || *class.ReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("class = %+v", class)
	}
}

// TestCRDsAreThoseOfTheAPI checks that the chart has up-to-date copies of the CRDs. Copies are needed because Helm
// reads no files outside of the chart.
func TestCRDsAreThoseOfTheAPI(t *testing.T) {
	want, err := filepath.Glob("../api/crds/*.yaml")
	if err != nil || len(want) == 0 {
		t.Fatalf("no CRDs found: %v", err)
	}
	shipped, err := filepath.Glob(filepath.Join(chartDir, "crds", "*.yaml"))
	if err != nil || len(shipped) != len(want) {
		t.Fatalf("the chart has %d CRDs, the API %d (%v)", len(shipped), len(want), err)
	}
	for i := range want {
		if diff := cmp.Diff(read(t, want[i]), read(t, shipped[i])); diff != "" {
			t.Errorf("%s (-) and %s (+) differ:\n%s", want[i], shipped[i], diff)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}
