// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

// crds returns the number of CRDs of the chart in the cluster.
func crds(t *testing.T) (count int) {
	t.Helper()
	names, err := Definitions()
	require.NoError(t, err)
	for _, name := range names {
		exists, err := newInstaller(t, "", "").crdExists(t.Context(), name)
		require.NoError(t, err)
		if exists {
			count++
		}
	}
	return count
}

// TestUninstallNamesTheOtherRelease checks that uninstalling a release that does not exist fails if there is another
// release, and keeps the CRDs of the other release. It succeeds if no release exists.
func TestUninstallNamesTheOtherRelease(t *testing.T) {
	_, err := newInstaller(t, "liqo", "refract").Install(t.Context(), valuesFor("rome"))
	require.NoError(t, err)
	before := crds(t)
	for _, wrong := range []*installer{newInstaller(t, "default", "refract"), newInstaller(t, "liqo", "other")} {
		for _, with := range []struct{ crds, force bool }{{}, {crds: true}, {force: true}, {crds: true, force: true}} {
			err := wrong.Uninstall(t.Context(), with.crds, with.force)
			require.ErrorContains(t, err, "there is no release "+wrong.Name+" in namespace "+wrong.Namespace+", Refract is installed as release refract in namespace liqo: run the command with -n liqo --release refract")
		}
		assert.Empty(t, wrong.said)
	}
	assert.Equal(t, before, crds(t))

	// An installation that is not a Helm release is not removed.
	byHand := &appsv1.Deployment{}
	right := newInstaller(t, "liqo", "refract")
	require.NoError(t, right.Client.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: "refract-controller-manager"}, byHand))
	byHand.ObjectMeta = metav1.ObjectMeta{Namespace: "liqo", Name: "by-hand", Labels: byHand.Labels}
	byHand.Labels[InstanceLabel] = "by-hand"
	require.NoError(t, right.Client.Create(t.Context(), byHand))
	require.ErrorContains(t, right.Uninstall(t.Context(), true, false), "release by-hand in namespace liqo needs the CRDs, too: run the command without --crds")
	require.ErrorContains(t, newInstaller(t, "liqo", "by-hand").Uninstall(t.Context(), false, false), "the controller manager liqo/by-hand is not of a Helm release")
	require.NoError(t, right.Client.Delete(t.Context(), byHand))

	require.NoError(t, right.Uninstall(t.Context(), false, false))
	assert.Contains(t, right.texts(), "removing release refract from namespace liqo")
	again := newInstaller(t, "liqo", "refract")
	require.NoError(t, again.Uninstall(t.Context(), false, false))
	assert.Equal(t, []string{"there is no release refract in namespace liqo, and the cluster has no other installation of Refract"}, again.said)
	assert.Equal(t, before, crds(t))

	require.NoError(t, newInstaller(t, "default", "refract").Uninstall(t.Context(), true, false))
	testenv.Eventually(t, func() error {
		if left := crds(t); left > 0 {
			return errors.New("the CRDs are still there")
		}
		return nil
	})
	require.NoError(t, newInstaller(t, "default", "refract").Uninstall(t.Context(), true, false), "once more")
	install(t, "liqo", "refract", "rome") // the other tests need the CRDs
}

// TestUninstallListsWhatIsInUse checks that all objects that need the controllers count as in use, including peers
// without any workload. User objects also count if the CRDs are to be deleted.
func TestUninstallListsWhatIsInUse(t *testing.T) {
	uses := func(withCRDs bool) []string {
		t.Helper()
		i := newInstaller(t, "nowhere", "refract")
		i.DryRun = true
		err := i.Uninstall(t.Context(), withCRDs, false)
		if used := (*InUseError)(nil); errors.As(err, &used) {
			return used.Uses
		}
		require.NoError(t, err)
		return nil
	}
	binding := func(namespace string, role rbac.Role) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "access", Labels: map[string]string{ManagedByLabel: ManagedBy}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Named("")},
		}
	}
	create(t, tenant("left-by-liqo"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	require.Empty(t, uses(true))

	for name, test := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"invited consumer": {[]client.Object{tenant("bari", ManagedByLabel, ManagedBy), binding("liqo-tenant-bari", rbac.RemoteControlPlane())},
			"Namespace liqo-tenant-bari: cluster bari is admitted as a consumer: end the peering there with refractctl unpeer, or revoke its access here with: refractctl delete peering-user bari"},
		"consumer in a namespace of others": {[]client.Object{tenant("lecce"), binding("liqo-tenant-lecce", rbac.RemoteControlPlane())},
			"Namespace liqo-tenant-lecce: cluster lecce is admitted as a consumer: end the peering there with refractctl unpeer, or revoke its access here with: refractctl delete peering-user lecce"},
		"provider without a node": {[]client.Object{tenant("milan", ManagedByLabel, ManagedBy)},
			"Namespace liqo-tenant-milan: a peering with cluster milan is left: end it with refractctl unpeer --remote-context=CONTEXT, or, if that cluster is gone for good, with: refractctl unpeer milan --force"},
		"requested share": {[]client.Object{tenant("pisa", ManagedByLabel, ManagedBy), &auth.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-pisa", Name: "milan"}}},
			"ResourceSlice liqo-tenant-pisa/milan: cluster pisa is a consumer of this one: end the peering there with refractctl unpeer, or revoke its access here with: refractctl delete peering-user pisa"},
		"request to a provider": {[]client.Object{tenant("genoa"), &auth.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-genoa", Name: "web", Labels: map[string]string{wire.ReplicationLabel: "true"}}}},
			"ResourceSlice liqo-tenant-genoa/web: it was sent to provider genoa, where its copy has to be deleted: run refractctl delete resourceslice web, or end the peering with liqoctl unpeer"},
		"consumer that runs Liqo": {[]client.Object{tenant("turin"), &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-turin", Name: "turin"}, Spec: auth.TenantSpec{ClusterID: "turin"}}},
			"Tenant liqo-tenant-turin/turin: cluster turin is a consumer of this one: end the peering there with liqoctl unauthenticate, or revoke its access by setting spec.tenantCondition to Drained, and delete the Tenant"},
		"offloaded namespace": {[]client.Object{&offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}}},
			"NamespaceOffloading shop/offloading: unoffload it with: refractctl unoffload namespace shop"},
	} {
		t.Run(name, func(t *testing.T) {
			create(t, test.objects...)
			assert.Equal(t, []string{test.want}, uses(false))
		})
		require.Empty(t, uses(true), "after %s", name)
	}

	create(t, &plugins.ReflectedResource{ObjectMeta: metav1.ObjectMeta{Name: "certificates.cert-manager.io"}, Spec: plugins.ReflectedResourceSpec{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}},
		&plugins.PeerNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "milan"}, Spec: plugins.PeerNetworkSpec{ClusterID: "milan"}},
		&plugins.ReflectionPlugin{ObjectMeta: metav1.ObjectMeta{Name: "strip"}, Spec: plugins.ReflectionPluginSpec{
			PluginSettings: plugins.PluginSettings{Kinds: []string{"Service"}},
			Source:         plugins.PluginSource{ConfigMap: &plugins.ConfigMapSource{Name: "modules", Key: "strip.wasm"}},
		}},
		&networking.WgGatewayServerTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own-server"}},
		&networking.WgGatewayClientTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own-client"}},
		&offloading.VkOptionsTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "large"}},
		&offloading.VkOptionsTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "of-the-chart", Labels: map[string]string{InstanceLabel: "refract"}}},
		&offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bari"}, Spec: offloading.QuotaSpec{User: "bari", Resources: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("5")}}})
	assert.Empty(t, uses(false), "the CRDs stay")
	assert.Equal(t, []string{
		"ReflectedResource certificates.cert-manager.io: it would be deleted with its CRD: save it if you need it, and delete it with: kubectl delete reflectedresource certificates.cert-manager.io",
		"ReflectionPlugin strip: it would be deleted with its CRD: save it if you need it, and delete it with: kubectl delete reflectionplugin strip",
		"WgGatewayServerTemplate shop/own-server: it would be deleted with its CRD: save it if you need it, and delete it with: kubectl -n shop delete wggatewayservertemplate own-server",
		"WgGatewayClientTemplate shop/own-client: it would be deleted with its CRD: save it if you need it, and delete it with: kubectl -n shop delete wggatewayclienttemplate own-client",
		"PeerNetwork shop/milan: it would be deleted with its CRD: save it if you need it, and delete it with: kubectl -n shop delete peernetwork milan",
		"VkOptionsTemplate shop/large: it would be deleted with its CRD: save it if you need it, and delete it with: kubectl -n shop delete vkoptionstemplate large",
		"Quota shop/bari: it would be deleted with its CRD: save it if you need it, and delete it with: kubectl -n shop delete quota.offloading.liqo.io bari",
	}, uses(true))
}

// TestUninstallRemovesTheCRDsOfTheNetwork checks that the network CRDs that belong to the release, and that Helm keeps,
// are removed with the other CRDs unless they have objects. CRDs of Liqo or of an administrator are kept.
func TestUninstallRemovesTheCRDsOfTheNetwork(t *testing.T) {
	i := newInstaller(t, "liqo", "refract")
	given := valuesFor("rome")
	given["networking"] = map[string]any{"addresses": map[string]any{"enabled": true}}
	_, err := i.Install(t.Context(), given)
	require.NoError(t, err)
	ours, err := i.listNetworkCRDs(t.Context())
	require.NoError(t, err)
	require.Len(t, ours, 7)
	foreign := &unstructured.Unstructured{}
	foreign.SetGroupVersionKind(DefinitionKind)
	foreign.SetName("connections.networking.liqo.io")
	byAdministrator := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"meta.helm.sh/release-name":null}}}`))
	require.NoError(t, i.Client.Patch(t.Context(), foreign, byAdministrator))

	network := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "ipam.liqo.io/v1alpha1", "kind": "Network", "metadata": map[string]any{"namespace": "default", "name": name},
			"spec": map[string]any{"cidr": "10.1.0.0/16"},
		}}
	}
	testenv.Eventually(t, func() error { return i.Client.Create(t.Context(), network("pod-cidr")) })
	owned := network("owned")
	yes := true
	owner := &corev1.Service{}
	require.NoError(t, i.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "kubernetes"}, owner))
	owned.SetOwnerReferences([]metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Service", Name: owner.Name, UID: owner.UID, Controller: &yes},
	})
	require.NoError(t, i.Client.Create(t.Context(), owned))
	used := (*InUseError)(nil)
	require.ErrorAs(t, i.Uninstall(t.Context(), true, false), &used)
	assert.Equal(t, []string{
		"Network default/pod-cidr: it would be deleted with its CRD: save it if you need it, " +
			"and delete it with: kubectl -n default delete networks.ipam.liqo.io pod-cidr",
	}, used.Uses)

	require.NoError(t, i.Uninstall(t.Context(), false, false))
	left, err := i.listNetworkCRDs(t.Context())
	require.NoError(t, err)
	assert.Len(t, left, 6, "they are kept without --crds")
	require.ErrorAs(t, i.Uninstall(t.Context(), true, false), &used, "the release is gone, the objects are not")
	require.NoError(t, i.Client.Delete(t.Context(), network("pod-cidr")))
	require.NoError(t, i.Client.Delete(t.Context(), owned))
	require.NoError(t, i.Uninstall(t.Context(), true, false))
	testenv.Eventually(t, func() error {
		left, err := i.listNetworkCRDs(t.Context())
		if len(left) > 0 || crds(t) > 0 {
			return errors.New("CRDs are still there")
		}
		return err
	})
	exists, err := i.crdExists(t.Context(), foreign.GetName())
	require.NoError(t, err)
	assert.True(t, exists, "it is not of the chart")
	require.NoError(t, i.Client.Delete(t.Context(), foreign))
	install(t, "liqo", "refract", "rome") // the other tests need the CRDs
}

// unreadable is a client that can read only a given number of CRDs.
type unreadable struct {
	client.Client
	reads int
}

var errUnreadable = apierrors.NewInternalError(errors.New("etcd is away"))

func (u *unreadable) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if object.GetObjectKind().GroupVersionKind() == DefinitionKind {
		if u.reads--; u.reads < 0 {
			return errUnreadable
		}
	}
	return u.Client.Get(ctx, key, object, options...)
}

// TestUninstallDoesNotTakeAnErrorForLiqo checks that the CRDs do not count as Liqo's if reading a CRD fails.
func TestUninstallDoesNotTakeAnErrorForLiqo(t *testing.T) {
	for reads := range 2 {
		i := newInstaller(t, "nowhere", "refract")
		i.DryRun = true
		i.Client = &unreadable{i.Client, reads}
		require.ErrorIs(t, i.Uninstall(t.Context(), true, false), errUnreadable)
		assert.NotContains(t, i.texts(), "Liqo")
	}
}
