// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantaccess_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

var provider = controllertest.Cluster{ID: "milan", Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider)) }

// consumer is a cluster that refractctl peer has admitted.
type consumer struct {
	id, namespace string
}

// admit creates the objects that refractctl peer creates on the provider. managedBy is the value of the label that
// identifies their creator.
func admit(t *testing.T, id, managedBy string, cordoned *bool) consumer {
	t.Helper()
	c := consumer{id: id, namespace: wire.TenantNamespace(id)}
	provider.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: id}}})
	c.bind(t, managedBy)
	provider.Create(t, &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: id},
		Spec: offloading.QuotaSpec{User: id, LimitsEnforcement: offloading.NoLimitsEnforcement, Resources: corev1.ResourceList{}, Cordoned: cordoned}})
	return c
}

// bind creates the RoleBindings that give the consumer access.
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

// may reports whether the consumer may create a NamespaceMap, with its certificate and with its token.
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

// TestTenantsAreObeyed checks that a consumer that joined before this controller existed gets a Tenant, and that the
// condition of the Tenant is enforced.
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
	controllertest.Eventually(t, "the RoleBinding of renewals to be restored", func() error {
		provider.Get(t, renewal, rome.namespace, rbac.Peer("", "rome").Renewal(rome.namespace).GetName())
		if len(renewal.Subjects) == 0 {
			return errors.New("it has no subjects")
		}
		return nil
	})
	assert.Equal(t, []rbacv1.Subject{rbac.Group("rome")}, renewal.Subjects)
}

// TestADeletedTenantEndsTheAccess checks that a consumer whose Tenant is deleted loses its access, and gets no Tenant
// until it is admitted again.
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
	// The garbage collector's deletions are denied, so only the controller can revoke the access.
	admitDeletions := denyDeletions(t, binding)
	provider.Delete(t, turin.tenant())
	turin.awaitAccess(t, false)
	provider.Get(t, binding, turin.namespace, binding.Name)
	assert.Empty(t, binding.OwnerReferences, "the garbage collector would delete what refractctl peer grants from now on")
	admitDeletions()
	assert.True(t, apierrors.IsNotFound(provider.Client.Get(t.Context(), client.ObjectKeyFromObject(turin.tenant()), turin.tenant())), "nobody has admitted it again")

	turin.bind(t, wire.ManagedByRefractctl)
	turin.awaitTenant(t)
	turin.awaitAccess(t, true)
	controllertest.Eventually(t, "the RoleBinding to be deleted", func() error {
		return client.IgnoreNotFound(provider.Client.Delete(t.Context(), rbac.Peer("", "turin").TenantNamespace(turin.namespace).(*rbacv1.RoleBinding)))
	})
	provider.AwaitGone(t, turin.tenant())
}

// denyDeletions denies deletions of RoleBindings in the namespace of binding until the test ends or admit is called.
func denyDeletions(t *testing.T, binding *rbacv1.RoleBinding) (admit func()) {
	t.Helper()
	const name = "no-deletions"
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Delete}, Rule: admissionv1.Rule{APIGroups: []string{rbacv1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"rolebindings"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("request.namespace != %q", binding.Namespace)}},
	}}
	inForce := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	provider.Create(t, policy)
	provider.Create(t, inForce)
	admit = func() {
		for _, object := range []client.Object{inForce, policy} {
			assert.NoError(t, client.IgnoreNotFound(provider.Client.Delete(context.WithoutCancel(t.Context()), object)))
		}
	}
	t.Cleanup(admit)
	controllertest.Eventually(t, "policy "+name+" to be in force", func() error {
		if err := provider.Client.Delete(t.Context(), binding.DeepCopy(), client.DryRunAll); admission.DenyingPolicy(err) != name {
			return fmt.Errorf("the attempt ends with %v", err)
		}
		return nil
	})
	return admit
}

// TestATenantThatGoesDoesNotTakeWhatIsGrantedAgain checks that a Tenant that is being deleted revokes the access only
// once. Access that refractctl peer grants in the meantime must be kept, even after an earlier refractctl unpeer.
func TestATenantThatGoesDoesNotTakeWhatIsGrantedAgain(t *testing.T) {
	for id, again := range map[string]func(*testing.T, consumer){
		"novara": func(t *testing.T, c consumer) { c.awaitAccess(t, false) },
		"alba": func(t *testing.T, c consumer) {
			provider.Delete(t, rbac.Peer("", c.id).TenantNamespace(c.namespace).(*rbacv1.RoleBinding))
			provider.Delete(t, rbac.Peer("", c.id).Renewal(c.namespace).(*rbacv1.RoleBinding))
		},
	} {
		t.Run(id, func(t *testing.T) {
			c := admit(t, id, wire.ManagedByRefractctl, nil)
			start(t)
			former := c.awaitTenant(t)
			provider.Patch(t, former, `{"metadata":{"finalizers":["test.example/stays"]}}`)
			provider.Delete(t, former)
			again(t, c)
			c.bind(t, wire.ManagedByRefractctl)
			c.awaitAccess(t, true)
			binding := rbac.Peer("", c.id).TenantNamespace(c.namespace).(*rbacv1.RoleBinding)
			provider.Get(t, binding, c.namespace, binding.Name)
			before := binding.ResourceVersion
			provider.Patch(t, c.tenant(), `{"metadata":{"labels":{"seen":"true"}}}`)
			witness := admit(t, id+"-witness", wire.ManagedByRefractctl, nil)
			witness.awaitTenant(t) // the controller has only one worker, which has processed the label before this Tenant
			provider.Get(t, binding, c.namespace, binding.Name)
			assert.Equal(t, before, binding.ResourceVersion)
			provider.Patch(t, c.tenant(), `{"metadata":{"finalizers":null}}`)
			controllertest.Eventually(t, "a Tenant of the new access", func() error {
				next := c.tenant()
				if err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(next), next); err != nil {
					return err
				}
				if next.UID == former.UID {
					return errors.New("it is the former one")
				}
				return nil
			})
			c.awaitAccess(t, true)
		})
	}
}

// TestAFormerTenantOwnsNothing checks that a Tenant that belongs to a deleted RoleBinding does not become the owner of
// the present RoleBinding.
func TestAFormerTenantOwnsNothing(t *testing.T) {
	imola := admit(t, "imola", wire.ManagedByRefractctl, nil)
	// The garbage collector does not delete the Tenant while the RoleBinding for renewals exists.
	renewal := rbac.Peer("", "imola").Renewal(imola.namespace).(*rbacv1.RoleBinding)
	provider.Get(t, renewal, imola.namespace, renewal.Name)
	owner := func(name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding", Name: name, UID: uid}
	}
	former := imola.tenant()
	former.Labels = map[string]string{wire.AdmittedByLabel: wire.AdmittedByRefractctl}
	former.Spec.ClusterID = "imola"
	former.OwnerReferences = []metav1.OwnerReference{owner(renewal.Name, renewal.UID), owner("former", "00000000-0000-0000-0000-000000000000")}
	provider.Create(t, former)
	start(t)
	imola.awaitTenant(t)
	binding := rbac.Peer("", "imola").TenantNamespace(imola.namespace).(*rbacv1.RoleBinding)
	provider.Get(t, binding, imola.namespace, binding.Name)
	assert.Empty(t, binding.OwnerReferences)
}

// TestOneTenantIsEnforced checks that among several Tenants with the label, only the Tenant with the name of the
// consumer is enforced. It must still be enforced after liqoctl peer has written a request to it, and an Event must
// explain why the request gets no response.
func TestOneTenantIsEnforced(t *testing.T) {
	parma := admit(t, "parma", wire.ManagedByRefractctl, nil)
	provider.Create(t, &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: parma.namespace, Name: "aaa", Labels: map[string]string{wire.AdmittedByLabel: wire.AdmittedByRefractctl}}, Spec: auth.TenantSpec{ClusterID: "parma"}})
	provider.Create(t, &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: parma.namespace, Name: "parma", Labels: map[string]string{wire.AdmittedByLabel: wire.AdmittedByRefractctl}},
		Spec: auth.TenantSpec{ClusterID: "parma", TenantCondition: auth.TenantDrained}})
	start(t)
	parma.awaitAccess(t, false)
	parma.awaitCordon(t, true)
	assert.Equal(t, auth.KeysExchange, parma.awaitTenant(t).Spec.Policy())
	provider.Patch(t, parma.tenant(), `{"spec":{"csr":"YQ=="}}`)
	assert.Contains(t, provider.AwaitEvent(t, parma.namespace, auth.TenantKind, "parma", "AlreadyAdmitted").Note, "run refractctl unpeer first")
}

// TestADrainOfRefractctlHasNoTenant checks that a consumer has no Tenant until refractctl has activated it. It must
// then get a Tenant whose condition matches its Quota.
func TestADrainOfRefractctlHasNoTenant(t *testing.T) {
	udine := admit(t, "udine", wire.ManagedByRefractctl, ptr.To(true))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: udine.namespace}}
	provider.Patch(t, namespace, `{"metadata":{"annotations":{"`+wire.DrainedTenantAnnotation+`":"true"}}}`)
	start(t)
	admit(t, "trento", wire.ManagedByRefractctl, nil).awaitTenant(t)
	provider.Patch(t, udine.quota(t), `{"metadata":{"labels":{"seen":"true"}}}`)
	// The controller has only one worker, which processes the other namespace before this one.
	admit(t, "rovereto", wire.ManagedByRefractctl, nil).awaitTenant(t)
	assert.True(t, apierrors.IsNotFound(provider.Client.Get(t.Context(), client.ObjectKeyFromObject(udine.tenant()), udine.tenant())))
	provider.Patch(t, namespace, `{"metadata":{"annotations":null}}`)
	assert.Equal(t, auth.TenantCordoned, udine.awaitTenant(t).Spec.TenantCondition)
	udine.set(t, auth.TenantActive)
	udine.awaitCordon(t, false)
}

// TestTheNextTenantIsAsLimited checks that if a cordoned or drained Tenant is deleted and its consumer is admitted
// again, the next Tenant has the same condition.
func TestTheNextTenantIsAsLimited(t *testing.T) {
	massa := admit(t, "massa", wire.ManagedByRefractctl, nil)
	start(t)
	former := massa.awaitTenant(t)
	for _, condition := range []auth.TenantCondition{auth.TenantCordoned, auth.TenantDrained} {
		massa.set(t, condition)
		massa.awaitRecord(t, string(condition)+"/"+string(former.UID))
		massa.awaitCordon(t, true)
		massa.awaitAccess(t, condition == auth.TenantCordoned)
		provider.Delete(t, massa.tenant())
		massa.awaitAccess(t, false)
		provider.Patch(t, massa.quota(t), `{"metadata":{"annotations":null},"spec":{"cordoned":null}}`)
		massa.bind(t, wire.ManagedByRefractctl)
		controllertest.Eventually(t, "the next Tenant", func() error {
			next := massa.tenant()
			if err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(next), next); err != nil {
				return err
			}
			if next.UID == former.UID || next.Spec.TenantCondition != condition {
				return fmt.Errorf("it is %s", next.Spec.TenantCondition)
			}
			former = next
			return nil
		})
		massa.awaitCordon(t, true)
		massa.awaitAccess(t, condition == auth.TenantCordoned)
	}
	massa.set(t, auth.TenantActive)
	massa.awaitRecord(t, "")
	massa.awaitAccess(t, true)
	massa.awaitCordon(t, false)
}

// TestARestoredTenantLeavesTheRecord checks that the annotation that records a drain is kept on the namespace if an
// administrator recreates the drained Tenant as active. The next Tenant that the controller creates must then be
// drained again.
func TestARestoredTenantLeavesTheRecord(t *testing.T) {
	carpi := admit(t, "carpi", wire.ManagedByRefractctl, nil)
	manager := start(t)
	former := carpi.awaitTenant(t)
	carpi.set(t, auth.TenantDrained)
	record := "Drained/" + string(former.UID)
	carpi.awaitRecord(t, record)
	carpi.awaitAccess(t, false)
	manager.Stop(t)
	provider.Delete(t, carpi.tenant())
	controllertest.Eventually(t, "the garbage collector to delete the RoleBinding of the Tenant", func() error {
		binding := rbac.Peer("", carpi.id).TenantNamespace(carpi.namespace)
		if err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(binding), binding); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	restored := carpi.tenant()
	restored.Labels, restored.Spec = former.Labels, former.Spec
	restored.Spec.TenantCondition = auth.TenantActive
	provider.Create(t, restored)
	start(t)
	provider.AwaitEvent(t, carpi.namespace, auth.TenantKind, carpi.id, "NotAdmitted")
	carpi.awaitRecord(t, record)
	provider.Delete(t, restored)
	carpi.bind(t, wire.ManagedByRefractctl)
	assert.Equal(t, auth.TenantDrained, carpi.awaitTenant(t).Spec.TenantCondition)
	carpi.awaitAccess(t, false)
}

func (c consumer) awaitRecord(t *testing.T, want string) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("the record %q", want), func() error {
		namespace := &corev1.Namespace{}
		provider.Get(t, namespace, "", c.namespace)
		if is := namespace.Annotations[wire.TenantConditionAnnotation]; is != want {
			return errors.New("it is " + is)
		}
		return nil
	})
}

// TestTheCordonOfAnAdministratorStays checks that if an administrator has cordoned the Quota, it stays cordoned when
// the cordon of the Tenant ends.
func TestTheCordonOfAnAdministratorStays(t *testing.T) {
	prato := admit(t, "prato", wire.ManagedByRefractctl, nil)
	start(t)
	prato.awaitTenant(t)
	provider.Patch(t, prato.quota(t), `{"spec":{"cordoned":true}}`)
	prato.set(t, auth.TenantDrained)
	prato.awaitAccess(t, false)
	prato.set(t, auth.TenantActive)
	prato.awaitAccess(t, true)
	assert.True(t, ptr.Deref(prato.quota(t).Spec.Cordoned, false))
}

// TestAnImmediateReturnKeepsItsAccess checks that a consumer that is admitted again keeps its new access when the
// garbage collector deletes the Tenant of its former access.
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

// TestOthersAreLeftAlone checks that a consumer that was not admitted by refractctl gets no Tenant, and that a cordon
// by an administrator is kept.
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

// TestTheManagerRestoresOnlyWhatRefractctlHasGranted checks that the policies do not let the controller manager grant
// access that refractctl has not granted.
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
	without := present.DeepCopy()
	without.Subjects, without.Name, without.UID, without.ResourceVersion = nil, "in-two-steps", "", ""
	without.OwnerReferences = nil // the garbage collector deletes objects whose owner is in another namespace
	assert.ErrorContains(t, manager.Create(t.Context(), without), "only in RoleBindings of refractctl", "without subjects, at first")
	declared := without.DeepCopy()
	declared.Labels = nil
	provider.Create(t, declared)
	labelled := declared.DeepCopy()
	labelled.Labels = present.Labels
	assert.ErrorContains(t, manager.Patch(t.Context(), labelled, client.MergeFrom(declared)), "only in RoleBindings of refractctl", "the label, at first")
	for what, subject := range map[string]rbacv1.Subject{
		"a user": rbac.User("eve"), "a user of its name": rbac.User("siena"), "another group": rbac.Group("eve"), "another account of its namespace": rbac.ServiceAccount(siena.namespace, "default"),
		"the account of another namespace": rbac.ServiceAccount(elsewhere, wire.ConsumerServiceAccount),
	} {
		more := present.DeepCopy()
		more.Subjects = append(more.Subjects, subject)
		assert.ErrorContains(t, manager.Patch(t.Context(), more, client.MergeFrom(present)), "only to its consumer", what)
	}
	others := without.DeepCopy()
	others.Name, others.Labels = "of-others", map[string]string{"app.kubernetes.io/managed-by": "helm"}
	provider.Create(t, others)
	filled := others.DeepCopy()
	filled.Subjects = []rbacv1.Subject{rbac.Group("siena")}
	assert.ErrorContains(t, manager.Patch(t.Context(), filled, client.MergeFrom(others)), "only in RoleBindings of refractctl", "of others")
	remote := without.DeepCopy()
	remote.Namespace = provider.Extended(t, "siena")
	provider.Create(t, remote)
	filled = remote.DeepCopy()
	filled.Subjects = []rbacv1.Subject{rbac.Group("siena")}
	assert.ErrorContains(t, manager.Patch(t.Context(), filled, client.MergeFrom(remote)), "restores access to a tenant namespace only", "in a remote namespace")
	renewal := without.DeepCopy()
	renewal.Name, renewal.RoleRef.Name, renewal.Subjects = "renewal", "liqo-remote-renewal", []rbacv1.Subject{rbac.Group("siena")}
	assert.ErrorContains(t, manager.Create(t.Context(), renewal), "only in RoleBindings of refractctl", "the role of renewals")
	for _, spec := range []string{`{"resources":{"cpu":"100"}}`, `{"user":"eve"}`, `{"limitsEnforcement":"Hard"}`, `{"limitsEnforcement":null}`} {
		assert.ErrorContains(t, manager.Patch(t.Context(), siena.quota(t), client.RawPatch("application/merge-patch+json", []byte(`{"spec":`+spec+`}`))), "only spec.cordoned", spec)
	}
}
