// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantaccess_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/testenv"
)

var provider = controllertest.Cluster{ID: "milan", Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider)) }

// consumer is a cluster that refractctl peer has admitted.
type consumer struct {
	id, namespace string
}

// admit creates the objects that refractctl peer creates on the provider, with a label that names their creator.
func admit(t *testing.T, id, managedBy string, cordoned *bool) consumer {
	t.Helper()
	c := consumer{id: id, namespace: wire.TenantNamespace(id)}
	provider.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: id}}})
	c.bind(t, managedBy)
	provider.Create(t, &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: id},
		Spec: offloading.QuotaSpec{User: id, LimitsEnforcement: offloading.NoLimitsEnforcement, Resources: corev1.ResourceList{}, Cordoned: cordoned}})
	return c
}

// bind grants the consumer its access.
func (c consumer) bind(t *testing.T, managedBy string) {
	t.Helper()
	peer := rbac.Peer("", c.id)
	objects := []rbac.Object{peer.TenantNamespace(c.namespace), peer.Renewal(c.namespace)}
	for _, object := range objects {
		object.SetLabels(map[string]string{"app.kubernetes.io/managed-by": managedBy})
	}
	require.NoError(t, provider.Grant(t.Context(), append(peer.Objects(), objects...)...))
}

func (c consumer) set(t *testing.T, condition auth.TenantCondition) {
	t.Helper()
	provider.Patch(t, c.tenant(), fmt.Sprintf(`{"spec":{"tenantCondition":%q}}`, condition))
}

func (c consumer) tenant() *auth.Tenant {
	return &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.id}}
}

func (c consumer) quota(t *testing.T) *offloading.Quota {
	t.Helper()
	quota := &offloading.Quota{}
	provider.Get(t, quota, c.namespace, c.id)
	return quota
}

// may reports whether the consumer may create a NamespaceMap with its certificate, and with its token.
func (c consumer) may(t *testing.T) (certificate, token bool) {
	t.Helper()
	ask := func(user string, groups ...string) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.namespace, Group: "offloading.liqo.io", Resource: "namespacemaps", Verb: "create"}}}
		require.NoError(t, provider.Client.Create(t.Context(), review))
		return review.Status.Allowed
	}
	return ask("kubelet", c.id), ask("system:serviceaccount:" + c.namespace + ":" + wire.ConsumerServiceAccount)
}

func (c consumer) awaitAccess(t *testing.T, want bool) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("the access of %s to be %t", c.id, want), func() error {
		if certificate, token := c.may(t); certificate != want || token != want {
			return fmt.Errorf("it may with its certificate: %t, with its token: %t", certificate, token)
		}
		return nil
	})
}

func (c consumer) awaitCordon(t *testing.T, want bool) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("the Quota of %s to be cordoned: %t", c.id, want), func() error {
		if ptr.Deref(c.quota(t).Spec.Cordoned, false) != want {
			return errors.New("it is not yet")
		}
		return nil
	})
}

func (c consumer) awaitTenant(t *testing.T) *auth.Tenant {
	t.Helper()
	tenant := c.tenant()
	controllertest.Eventually(t, "Tenant "+c.id, func() error {
		if err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant); err != nil {
			return err
		}
		if tenant.Status.TenantNamespace != c.namespace {
			return errors.New("it has no status")
		}
		return nil
	})
	return tenant
}

func start(t *testing.T) *controllertest.Manager {
	t.Helper()
	require.NoError(t, provider.Grant(t.Context(), rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}.TenantAccess()...))
	return provider.StartManager(t, func(o *controllers.Options) { o.TenantAccess.Enabled = true })
}

// A consumer that joined before this controller existed gets a Tenant, whose condition is enforced.
func TestTenantsAreObeyed(t *testing.T) {
	rome := admit(t, "rome", wire.ManagedByRefractctl, nil)
	start(t)
	tenant := rome.awaitTenant(t)
	assert.Equal(t, auth.TenantActive, tenant.Spec.TenantCondition)
	assert.Equal(t, "rome", tenant.Labels[wire.RemoteClusterIDLabel])
	assert.Nil(t, tenant.Status.AuthParams, "it has credentials of refractctl peer")
	provider.AwaitEvent(t, rome.namespace, auth.TenantKind, "rome", "TenantCreated")
	rome.awaitAccess(t, true)

	rome.set(t, auth.TenantCordoned)
	rome.awaitCordon(t, true)
	rome.awaitAccess(t, true)
	rome.set(t, auth.TenantActive)
	rome.awaitCordon(t, false)

	mapping := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: rome.namespace, Name: "milan",
		Labels: map[string]string{wire.ReplicatedLabel: "true", wire.ReplicationLabel: "false", wire.OriginIDLabel: "rome", wire.RemoteClusterIDLabel: "rome"}}}
	mapping.Spec.DesiredMapping = map[string]string{"shop": "shop-rome"}
	provider.Create(t, mapping)
	controllertest.Eventually(t, "the remote namespace", func() error {
		return provider.Client.Get(t.Context(), client.ObjectKey{Name: "shop-rome"}, &corev1.Namespace{})
	})
	slice := &auth.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: rome.namespace, Name: "milan", Labels: map[string]string{wire.NegotiateLabel: "true"}}}
	provider.Create(t, slice)
	rome.set(t, auth.TenantDrained)
	rome.awaitAccess(t, false)
	rome.awaitCordon(t, true)
	provider.AwaitGone(t, mapping)
	provider.Get(t, slice, slice.Namespace, slice.Name)
	provider.AwaitEvent(t, rome.namespace, auth.TenantKind, "rome", "AccessRevoked")
	rome.bind(t, wire.ManagedByRefractctl)
	rome.awaitAccess(t, false)

	rome.set(t, auth.TenantActive)
	rome.awaitAccess(t, true)
	rome.awaitCordon(t, false)
	renewal := &rbacv1.RoleBinding{}
	provider.Get(t, renewal, rome.namespace, rbac.Peer("", "rome").Renewal(rome.namespace).GetName())
	assert.Equal(t, []rbacv1.Subject{rbac.Group("rome")}, renewal.Subjects)
}

// A consumer whose Tenant is deleted has no access, and no Tenant until it is admitted again.
func TestADeletedTenantEndsTheAccess(t *testing.T) {
	turin := admit(t, "turin", wire.ManagedByRefractctl, nil)
	start(t)
	turin.awaitTenant(t)
	binding := rbac.Peer("", "turin").TenantNamespace(turin.namespace).(*rbacv1.RoleBinding)
	controllertest.Eventually(t, "the RoleBinding to have its owner", func() error {
		provider.Get(t, binding, turin.namespace, binding.Name)
		if len(binding.OwnerReferences) == 0 {
			return errors.New("it has none")
		}
		return nil
	})
	provider.Delete(t, turin.tenant())
	turin.awaitAccess(t, false)
	provider.AwaitGone(t, binding)
	assert.True(t, apierrors.IsNotFound(provider.Client.Get(t.Context(), client.ObjectKeyFromObject(turin.tenant()), turin.tenant())), "nobody has admitted it again")

	turin.bind(t, wire.ManagedByRefractctl)
	turin.awaitTenant(t)
	turin.awaitAccess(t, true)
	provider.Delete(t, rbac.Peer("", "turin").TenantNamespace(turin.namespace).(*rbacv1.RoleBinding))
	provider.AwaitGone(t, turin.tenant())
}

// A consumer that is admitted again before the garbage collector has deleted the Tenant of its former access keeps the
// new access.
func TestAnImmediateReturnKeepsItsAccess(t *testing.T) {
	lucca := admit(t, "lucca", wire.ManagedByRefractctl, nil)
	start(t)
	former := lucca.awaitTenant(t)
	for range 3 {
		provider.Delete(t, rbac.Peer("", "lucca").TenantNamespace(lucca.namespace).(*rbacv1.RoleBinding))
		lucca.bind(t, wire.ManagedByRefractctl)
		tenant := lucca.tenant()
		controllertest.Eventually(t, "the next Tenant", func() error {
			if err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant); err != nil {
				return err
			}
			if tenant.UID == former.UID {
				return errors.New("it is the former one")
			}
			return nil
		})
		former = tenant
		lucca.awaitAccess(t, true)
	}
}

// A consumer that refractctl has not admitted gets no Tenant, and the cordon of an administrator stays.
func TestOthersAreLeftAlone(t *testing.T) {
	declared := admit(t, "bari", "Helm", nil)
	liqo := admit(t, "pisa", wire.ManagedByRefractctl, nil)
	own := &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: liqo.namespace, Name: "of-liqo"}, Spec: auth.TenantSpec{ClusterID: "pisa", TenantCondition: auth.TenantDrained}}
	provider.Create(t, own)
	cordoned := admit(t, "genoa", wire.ManagedByRefractctl, ptr.To(true))
	start(t)
	tenant := cordoned.awaitTenant(t)
	assert.Equal(t, auth.TenantCordoned, tenant.Spec.TenantCondition)
	controllertest.Eventually(t, "the Tenant to have the cordon", func() error {
		if _, is := cordoned.quota(t).Annotations[wire.CordonTenantAnnotation]; !is {
			return errors.New("the Quota is not annotated")
		}
		return nil
	})
	last := admit(t, "last", wire.ManagedByRefractctl, nil)
	last.awaitTenant(t)
	provider.Patch(t, last.quota(t), `{"spec":{"cordoned":true}}`)
	last.set(t, auth.TenantActive)
	for _, other := range []consumer{declared, liqo} {
		other.awaitAccess(t, true)
		assert.True(t, apierrors.IsNotFound(provider.Client.Get(t.Context(), client.ObjectKeyFromObject(other.tenant()), other.tenant())), other.id)
	}
	provider.Create(t, &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: declared.namespace, Name: "bari", Labels: map[string]string{wire.AdmittedByLabel: wire.AdmittedByRefractctl}},
		Spec: auth.TenantSpec{ClusterID: "bari", TenantCondition: auth.TenantDrained}})
	provider.AwaitEvent(t, declared.namespace, auth.TenantKind, "bari", "NotAdmitted")
	declared.awaitAccess(t, true)
	last.awaitCordon(t, true)
	provider.Patch(t, last.tenant(), `{"metadata":{"labels":{"seen":"true"}}}`)
	last.awaitCordon(t, true)
}

// The controller manager cannot grant access that refractctl has not granted: the policies deny it.
func TestTheManagerRestoresOnlyWhatRefractctlHasGranted(t *testing.T) {
	siena := admit(t, "siena", wire.ManagedByRefractctl, nil)
	elsewhere := provider.Namespace(t)
	start(t)
	siena.awaitTenant(t)
	config, err := provider.ConfigFor(controllertest.ManagerUser)
	require.NoError(t, err)
	manager, err := client.New(config, client.Options{Scheme: provider.Client.Scheme()})
	require.NoError(t, err)
	for what, binding := range map[string]*rbacv1.RoleBinding{
		"in its tenant namespace": {ObjectMeta: metav1.ObjectMeta{Namespace: siena.namespace, Name: "more", Labels: map[string]string{"app.kubernetes.io/managed-by": wire.ManagedByRefractctl}}},
		"elsewhere":               {ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "more"}},
	} {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-remote-controlplane"}
		binding.Subjects = []rbacv1.Subject{rbac.Group("siena")}
		assert.ErrorContains(t, manager.Create(t.Context(), binding), "restores access to a tenant namespace only in RoleBindings of refractctl", what)
	}
	present := &rbacv1.RoleBinding{}
	provider.Get(t, present, siena.namespace, rbac.Peer("", "siena").TenantNamespace(siena.namespace).GetName())
	more := present.DeepCopy()
	more.Subjects = append(more.Subjects, rbac.User("eve"))
	assert.ErrorContains(t, manager.Patch(t.Context(), more, client.MergeFrom(present)), "only to its consumer")
	quota := siena.quota(t)
	assert.ErrorContains(t, manager.Patch(t.Context(), quota, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"resources":{"cpu":"100"}}}`))), "only spec.cordoned")
}
