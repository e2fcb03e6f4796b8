// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/remotedata"
	"github.com/refract-project/refract/test/support/testenv"
)

var provider = controllertest.Cluster{ID: "milan", Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider)) }

// start starts the controllers as the chart does with authentication.enabled.
func start(t *testing.T, change ...func(*controllers.Options)) *controllertest.Manager {
	t.Helper()
	manager := rbac.Manager{Namespace: metav1.NamespaceDefault, Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, provider.Grant(t.Context(), append(manager.Authentication(), manager.ResourceSlices()...)...))
	return provider.StartManager(t, append([]func(*controllers.Options){func(o *controllers.Options) {
		o.Authentication.Enabled, o.ResourceSlices.Enabled = true, true
		o.Authentication.APIServer.URL = provider.Config().Host
	}}, change...)...)
}

// consumer acts as a cluster that runs Liqo and joins the provider.
type consumer struct {
	*testing.T
	id, namespace string
	key           crypto.Signer
}

func newConsumer(t *testing.T, id string) *consumer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	c := &consumer{T: t, id: id, namespace: wire.TenantNamespace(id), key: key}
	provider.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: id}}})
	return c
}

// nonce requests a nonce as liqoctl does.
func (c *consumer) nonce() []byte {
	c.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: wire.NonceSecret, Labels: map[string]string{wire.NonceLabel: "true", wire.RemoteClusterIDLabel: c.id}}}
	provider.Create(c.T, secret)
	controllertest.Eventually(c.T, "a nonce", func() error {
		if err := provider.Client.Get(c.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
			return err
		}
		if len(secret.Data[wire.NonceKey]) == 0 {
			return errors.New("it is empty")
		}
		return nil
	})
	return secret.Data[wire.NonceKey]
}

func (c *consumer) sign(nonce []byte) []byte {
	c.Helper()
	message, hash := nonce, crypto.Hash(0)
	if _, is := c.key.(ed25519.PrivateKey); !is {
		sum := sha256.Sum256(nonce)
		message, hash = sum[:], crypto.SHA256
	}
	signature, err := c.key.Sign(rand.Reader, message, hash)
	require.NoError(c, err)
	return signature
}

func (c *consumer) publicKey() []byte {
	c.Helper()
	der, err := x509.MarshalPKIXPublicKey(c.key.Public())
	require.NoError(c, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func (c *consumer) csr(name, organization string) []byte {
	c.Helper()
	request, err := clientcert.New(clientcert.Subject{CommonName: name, Organization: organization}, c.key)
	require.NoError(c, err)
	return request
}

func (c *consumer) tenant(nonce []byte) *auth.Tenant {
	return &auth.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.id, Labels: map[string]string{wire.RemoteClusterIDLabel: c.id}},
		Spec:       auth.TenantSpec{ClusterID: core.ClusterID(c.id), PublicKey: c.publicKey(), CSR: c.csr(c.id, "liqo.io"), Signature: c.sign(nonce)},
	}
}

// join creates the Tenant of the consumer, but no ResourceSlice.
func (c *consumer) join() *auth.Tenant {
	c.Helper()
	tenant := c.tenant(c.nonce())
	provider.Create(c.T, tenant)
	return c.admitted(tenant)
}

func (c *consumer) admitted(tenant *auth.Tenant) *auth.Tenant {
	c.Helper()
	controllertest.Eventually(c.T, "the Tenant to be admitted", func() error {
		if err := provider.Client.Get(c.Context(), client.ObjectKeyFromObject(tenant), tenant); err != nil {
			return err
		}
		if tenant.Status.AuthParams == nil {
			return errors.New("it has no status")
		}
		return nil
	})
	return tenant
}

func (c *consumer) slice(name string, resources corev1.ResourceList) *auth.ResourceSlice {
	return &auth.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, Labels: map[string]string{wire.ReplicatedLabel: "true", wire.OriginIDLabel: c.id}},
		Spec: auth.ResourceSliceSpec{ConsumerClusterID: ptr.To(core.ClusterID(c.id)), ProviderClusterID: ptr.To(core.ClusterID(provider.ID)), Class: auth.DefaultResourceSliceClass, Resources: resources,
			CSR: c.csr(auth.ResourceSliceUser(name, c.id), c.id)},
	}
}

func cpu(quantity string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
}

// decided waits until a condition of the slice has the given decision.
func (c *consumer) decided(slice *auth.ResourceSlice, what auth.ResourceSliceConditionType, decision auth.ResourceSliceConditionStatus) *auth.ResourceSliceCondition {
	c.Helper()
	controllertest.Eventually(c.T, fmt.Sprintf("%s of slice %s", what, slice.Name), func() error {
		if err := provider.Client.Get(c.Context(), client.ObjectKeyFromObject(slice), slice); err != nil {
			return err
		}
		if is := slice.Status.Decision(what); is != decision {
			return fmt.Errorf("it is %q: %+v", is, slice.Status.Conditions)
		}
		return nil
	})
	return slice.Status.Condition(what)
}

// with returns a client for the provider that uses the issued credentials.
func (c *consumer) with(params *auth.AuthParams) client.Client {
	c.Helper()
	key, err := keyutil.MarshalPrivateKeyToPEM(c.key)
	if err != nil { // keyutil does not support Ed25519 keys
		der, marshalErr := x509.MarshalPKCS8PrivateKey(c.key)
		require.NoError(c, marshalErr)
		key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	scheme, err := controllers.Scheme()
	require.NoError(c, err)
	opened, err := client.New(&rest.Config{Host: params.APIServer, TLSClientConfig: rest.TLSClientConfig{CAData: params.CA, CertData: params.SignedCRT, KeyData: key}}, client.Options{Scheme: scheme})
	require.NoError(c, err)
	return opened
}

// who returns the user name and the groups of the client, as the provider sees them.
func (c *consumer) who(opened client.Client) authenticationv1.UserInfo {
	c.Helper()
	review := &authenticationv1.SelfSubjectReview{}
	require.NoError(c, opened.Create(c.Context(), review))
	return review.Status.UserInfo
}

// quiet fails the test if CertificateSigningRequests remain.
func quiet(t *testing.T) {
	t.Helper()
	list := &certificatesv1.CertificateSigningRequestList{}
	require.NoError(t, provider.Client.List(t.Context(), list))
	assert.Empty(t, list.Items)
}

// TestADrainThatAPolicyDenies checks that a drain that a policy denies is reported on the Tenant, and continues as soon
// as the policy allows it.
func TestADrainThatAPolicyDenies(t *testing.T) {
	manager := start(t)
	pisa := newConsumer(t, "pisa")
	tenant := pisa.join()
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: pisa.namespace, Name: "liqo-remote-tenant"}}
	mend := provider.Deny(t, "refract-denies-drains", admissionv1.Delete, rbacv1.GroupName, "rolebindings", pisa.namespace, func(c client.Client) error {
		return c.Delete(t.Context(), binding.DeepCopy(), client.DryRunAll)
	})
	provider.Patch(t, tenant, `{"spec":{"tenantCondition":"Drained"}}`)
	event := provider.AwaitEvent(t, pisa.namespace, auth.TenantKind, "pisa", "PolicyDenied")
	assert.Contains(t, event.Note, "ValidatingAdmissionPolicy refract-denies-drains denied a request")
	assert.Contains(t, event.Note, "the test denies this")
	assert.NotZero(t, manager.Metric(t, "refract_controller_policy_denials_total", "controller", "tenant", "destination", "local", "policy", "refract-denies-drains"))
	assert.NotZero(t, manager.Metric(t, "refract_controller_errors_total", "controller", "tenant", "class", "policy"))
	mend()
	provider.AwaitGone(t, binding)
	assert.NotEmpty(t, manager.Writes.Denied())
}

// TestJoin checks that a consumer can perform all its steps with the credentials that it gets, from the creation of the
// first Tenant to the deletion of the Tenant. It also checks that the consumer may not write the status or read other
// objects.
func TestJoin(t *testing.T) {
	start(t)
	rome := newConsumer(t, "rome")
	tenant := rome.join()
	assert.Equal(t, rome.namespace, tenant.Status.TenantNamespace)
	provider.AwaitEvent(t, rome.namespace, auth.TenantKind, "rome", "TenantAdmitted")

	controlPlane := rome.with(tenant.Status.AuthParams)
	who := rome.who(controlPlane)
	assert.Equal(t, "rome", who.Username)
	assert.Equal(t, []string{"liqo.io", "system:authenticated"}, who.Groups)

	slice := rome.slice("more", cpu("4"))
	require.NoError(t, controlPlane.Create(t.Context(), slice), "it may ask for a share")
	rome.decided(slice, auth.AuthenticationCondition, auth.ResourceSliceAccepted)
	rome.decided(slice, auth.ResourcesCondition, auth.ResourceSliceAccepted)
	assert.True(t, slice.Status.Resources.Cpu().Equal(resource.MustParse("4")))
	who = rome.who(rome.with(slice.Status.AuthParams))
	assert.Equal(t, auth.ResourceSliceUser("more", "rome"), who.Username)
	assert.Equal(t, []string{"rome", "system:authenticated"}, who.Groups)
	assert.True(t, apierrors.IsForbidden(rome.with(slice.Status.AuthParams).List(t.Context(), &auth.ResourceSliceList{}, client.InNamespace(rome.namespace))), "a virtual kubelet has nothing to do there")
	quota := &offloading.Quota{}
	controllertest.Eventually(t, "its Quota", func() error {
		return provider.Client.Get(t.Context(), client.ObjectKey{Namespace: rome.namespace, Name: who.Username}, quota)
	})
	assert.True(t, quota.Spec.Resources.Cpu().Equal(resource.MustParse("4")))

	// The consumer is not allowed to write the status, and has no access to other namespaces.
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"resources":{"cpu":"1000"}}}`))
	assert.True(t, apierrors.IsForbidden(controlPlane.Status().Patch(t.Context(), slice.DeepCopy(), patch)))
	assert.True(t, apierrors.IsForbidden(controlPlane.List(t.Context(), &auth.TenantList{}, client.InNamespace(rome.namespace))))
	assert.True(t, apierrors.IsForbidden(controlPlane.List(t.Context(), &corev1.SecretList{}, client.InNamespace(rome.namespace))))
	assert.True(t, apierrors.IsForbidden(controlPlane.List(t.Context(), &auth.ResourceSliceList{})))

	t.Run("nothing is signed twice", func(t *testing.T) {
		former := slice.Status.AuthParams.SignedCRT
		provider.Patch(t, slice, `{"spec":{"resources":{"cpu":"5"}}}`)
		controllertest.Eventually(t, "the grant", func() error {
			if err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(slice), slice); err != nil || !slice.Status.Resources.Cpu().Equal(resource.MustParse("5")) {
				return fmt.Errorf("it is %v, %w", slice.Status.Resources, err)
			}
			return nil
		})
		assert.Equal(t, former, slice.Status.AuthParams.SignedCRT)
	})

	t.Run("renewal", func(t *testing.T) {
		for name, spec := range map[string]auth.RenewSpec{
			"controlplane":  {IdentityType: auth.ControlPlaneIdentityType, CSR: rome.csr("rome", "liqo.io")},
			"resourceslice": {IdentityType: auth.ResourceSliceIdentityType, ResourceSliceRef: &corev1.LocalObjectReference{Name: "more"}, CSR: rome.csr(auth.ResourceSliceUser("more", "rome"), "rome")},
		} {
			spec.ConsumerClusterID = "rome"
			renew := &auth.Renew{ObjectMeta: metav1.ObjectMeta{Namespace: rome.namespace, Name: name, Labels: map[string]string{wire.ReplicatedLabel: "true", wire.OriginIDLabel: "rome"}}, Spec: spec}
			require.NoError(t, controlPlane.Create(t.Context(), renew))
			controllertest.Eventually(t, "the renewal", func() error {
				if err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(renew), renew); err != nil || renew.Status.AuthParams == nil {
					return fmt.Errorf("it has no answer, %w", err)
				}
				return nil
			})
			provider.AwaitEvent(t, rome.namespace, auth.RenewKind, name, "CertificateRenewed")
			provider.Get(t, tenant, rome.namespace, "rome")
			provider.Get(t, slice, rome.namespace, "more")
			held := tenant.Status.AuthParams
			if name == "resourceslice" {
				held = slice.Status.AuthParams
			}
			assert.Equal(t, renew.Status.AuthParams.SignedCRT, held.SignedCRT, name)
			rome.who(rome.with(renew.Status.AuthParams))
		}
	})

	t.Run("the nonce is deleted afterwards", func(t *testing.T) {
		provider.Delete(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: rome.namespace, Name: wire.NonceSecret}})
		another := rome.slice("later", cpu("1"))
		provider.Create(t, another)
		rome.decided(another, auth.AuthenticationCondition, auth.ResourceSliceAccepted)
		rome.decided(slice, auth.AuthenticationCondition, auth.ResourceSliceAccepted)
	})

	t.Run("cordoned and active again", func(t *testing.T) {
		provider.Patch(t, tenant, `{"spec":{"tenantCondition":"Cordoned"}}`)
		cordoned := func(want bool) {
			controllertest.Eventually(t, "the cordon", func() error {
				if err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(quota), quota); err != nil || ptr.Deref(quota.Spec.Cordoned, false) != want {
					return fmt.Errorf("cordoned is %v, %w", quota.Spec.Cordoned, err)
				}
				return nil
			})
		}
		cordoned(true)
		rome.decided(slice, auth.ResourcesCondition, auth.ResourceSliceAccepted)
		another := rome.slice("cordoned", cpu("1"))
		provider.Create(t, another)
		assert.Contains(t, rome.decided(another, auth.ResourcesCondition, auth.ResourceSliceDenied).Message, "cordoned")
		provider.Patch(t, tenant, `{"spec":{"tenantCondition":"Active"}}`)
		cordoned(false)
		rome.decided(another, auth.ResourcesCondition, auth.ResourceSliceAccepted)
	})

	t.Run("a changed RoleBinding", func(t *testing.T) {
		binding, owner := &rbacv1.RoleBinding{}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: rome.namespace, Name: "team"}}
		controller := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: rome.namespace, Name: "controller"}}
		provider.Create(t, owner)
		provider.Create(t, controller)
		provider.Get(t, binding, rome.namespace, "liqo-remote-tenant")
		subjects := binding.Subjects
		binding.Labels["team"], binding.Annotations = "platform", map[string]string{"note": "theirs"}
		// An object has at most one controller. The garbage collector does not remove the reference to this controller,
		// because it exists.
		binding.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: auth.GroupVersion.String(), Kind: auth.TenantKind, Name: "rome", UID: "former"},
			{APIVersion: "v1", Kind: "ConfigMap", Name: controller.Name, UID: controller.UID, Controller: ptr.To(true)},
			{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
		}
		binding.Subjects = nil
		require.NoError(t, provider.Client.Update(t.Context(), binding))
		provider.Patch(t, tenant, `{"metadata":{"annotations":{"touched":"true"}}}`)
		controllertest.Eventually(t, "the subjects to be restored", func() error {
			if provider.Get(t, binding, rome.namespace, "liqo-remote-tenant"); len(binding.Subjects) == 0 {
				return fmt.Errorf("there are none")
			}
			return nil
		})
		assert.Equal(t, subjects, binding.Subjects)
		assert.Equal(t, "platform", binding.Labels["team"], "a label of another client")
		assert.Equal(t, "theirs", binding.Annotations["note"], "an annotation of another client")
		assert.Len(t, binding.OwnerReferences, 2, "owners: %v", binding.OwnerReferences)
		assert.Equal(t, owner.UID, binding.OwnerReferences[0].UID)
		assert.True(t, metav1.IsControlledBy(binding, tenant))
		provider.Delete(t, owner)
		provider.Delete(t, controller)
	})

	t.Run("drained", func(t *testing.T) {
		namespaceMap := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: rome.namespace, Name: "milan", Labels: map[string]string{wire.ReplicatedLabel: "true", wire.OriginIDLabel: "rome"}, Finalizers: []string{"test.example/hold"}}}
		provider.Create(t, namespaceMap)
		provider.Patch(t, tenant, `{"spec":{"tenantCondition":"Drained"}}`)
		provider.AwaitGone(t, slice)
		controllertest.Eventually(t, "the map to be deleted with data", func() error {
			if provider.Get(t, namespaceMap, rome.namespace, "milan"); namespaceMap.DeletionTimestamp == nil || !remotedata.IsConfirmed(namespaceMap) {
				return fmt.Errorf("it is %+v", namespaceMap.ObjectMeta)
			}
			return nil
		})
		provider.Patch(t, namespaceMap, `{"metadata":{"finalizers":null}}`)
		provider.AwaitGone(t, namespaceMap)
		provider.AwaitEvent(t, rome.namespace, auth.TenantKind, "rome", "TenantDrained")
		controllertest.Eventually(t, "the access to be taken back", func() error {
			if err := controlPlane.Create(t.Context(), rome.slice("again", cpu("1"))); !apierrors.IsForbidden(err) {
				return fmt.Errorf("asking for a share: %w", err)
			}
			return nil
		})
		provider.Patch(t, tenant, `{"spec":{"tenantCondition":"Active"}}`)
		controllertest.Eventually(t, "the access to be back", func() error {
			return client.IgnoreAlreadyExists(controlPlane.Create(t.Context(), rome.slice("back", cpu("1"))))
		})
	})

	t.Run("the end", func(t *testing.T) {
		back := rome.slice("back", cpu("1"))
		rome.decided(back, auth.ResourcesCondition, auth.ResourceSliceAccepted)
		// The finalizer that Liqo has left on the Tenant must not prevent its deletion.
		provider.Patch(t, tenant, `{"metadata":{"finalizers":["tenant.liqo.io/finalizer"]}}`)
		provider.Delete(t, tenant)
		provider.AwaitGone(t, tenant)
		provider.AwaitGone(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: rome.namespace, Name: "liqo-remote-tenant"}})
		assert.Contains(t, rome.decided(back, auth.ResourcesCondition, auth.ResourceSliceDenied).Message, "has no Tenant")
	})
	quiet(t)
}

// TestKeysOfLiqo checks that consumers can join with each type of key that versions of Liqo use.
func TestKeysOfLiqo(t *testing.T) {
	start(t)
	elliptic, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	rivest, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	for id, key := range map[string]crypto.Signer{"with-ecdsa": elliptic, "with-rsa": rivest} {
		c := newConsumer(t, id)
		c.key = key
		assert.Equal(t, id, c.who(c.with(c.join().Status.AuthParams)).Username)
	}
	old := newConsumer(t, "before-1-0-2")
	tenant := old.tenant(old.nonce())
	tenant.Spec.PublicKey = old.key.Public().(ed25519.PublicKey)
	provider.Create(t, tenant)
	old.admitted(tenant)
}

// TestTenantsThatAreRefused checks that refused Tenants get neither a certificate nor access.
func TestTenantsThatAreRefused(t *testing.T) {
	manager := start(t)
	other := newConsumer(t, "other")
	refused := func(id, reason, note string, change func(*consumer, *auth.Tenant)) {
		t.Helper()
		c := newConsumer(t, id)
		tenant := c.tenant(c.nonce())
		change(c, tenant)
		provider.Create(t, tenant)
		assert.Contains(t, provider.AwaitEvent(t, tenant.Namespace, auth.TenantKind, tenant.Name, reason).Note, note, id)
		provider.Get(t, tenant, tenant.Namespace, tenant.Name)
		assert.Nil(t, tenant.Status.AuthParams, id)
	}
	refused("forged", "SignatureVerificationFailed", "spec.signature", func(_ *consumer, tenant *auth.Tenant) { tenant.Spec.Signature[0] ^= 1 })
	refused("unsigned", "SignatureVerificationFailed", "spec.signature", func(_ *consumer, tenant *auth.Tenant) { tenant.Spec.Signature = nil })
	refused("keyless", "SignatureVerificationFailed", "spec.publicKey", func(_ *consumer, tenant *auth.Tenant) { tenant.Spec.PublicKey = nil })
	refused("garbage", "SignatureVerificationFailed", "spec.publicKey", func(_ *consumer, tenant *auth.Tenant) { tenant.Spec.PublicKey = []byte("key") })
	refused("admin", "InvalidCSR", "its subject is", func(c *consumer, tenant *auth.Tenant) { tenant.Spec.CSR = c.csr("kubernetes-admin", "liqo.io") })
	refused("masters", "InvalidCSR", "its subject is", func(c *consumer, tenant *auth.Tenant) { tenant.Spec.CSR = c.csr(c.id, "system:masters") })
	refused("stolen", "InvalidCSR", "is not that of the Tenant", func(c *consumer, tenant *auth.Tenant) {
		key := c.key
		c.key = other.key
		tenant.Spec.CSR = c.csr(c.id, "liqo.io")
		c.key = key
	})
	refused("elsewhere", "InvalidTenant", "is not the tenant namespace of that cluster", func(_ *consumer, tenant *auth.Tenant) { tenant.Namespace = provider.Namespace(t) })
	refused("neighbour", "InvalidTenant", "is not the tenant namespace of that cluster", func(_ *consumer, tenant *auth.Tenant) { tenant.Namespace = other.namespace })
	refused("second", "InvalidTenant", "already has another Tenant", func(c *consumer, tenant *auth.Tenant) {
		first := tenant.DeepCopy()
		first.Name = "a-first"
		provider.Create(t, first)
		c.admitted(first)
	})
	c := newConsumer(t, "nonceless")
	tenant := c.tenant([]byte("guessed"))
	provider.Create(t, tenant)
	assert.Contains(t, provider.AwaitEvent(t, c.namespace, auth.TenantKind, c.id, "NonceNotFound").Note, "has no nonce")
	bindings := &rbacv1.RoleBindingList{}
	require.NoError(t, provider.Client.List(t.Context(), bindings))
	for i := range bindings.Items {
		if bindings.Items[i].Name == "liqo-remote-tenant" && metav1.GetControllerOf(&bindings.Items[i]) != nil {
			assert.NotContains(t, []string{"forged", "unsigned", "keyless", "garbage", "admin", "masters", "stolen", "elsewhere", "neighbour", "nonceless"}, metav1.GetControllerOf(&bindings.Items[i]).Name)
		}
	}
	// A valid request is still admitted after the refused ones.
	provider.Patch(t, &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-nonceless", Name: "nonceless"}}, fmt.Sprintf(`{"spec":{"signature":%q}}`, base64.StdEncoding.EncodeToString(c.sign(c.nonce()))))
	c.admitted(tenant)
	assert.NotEmpty(t, manager.Writes.About("/certificatesigningrequests"), "the two that were admitted")
	quiet(t)
}

// requests returns a function that returns the sorted users of the certificates requested since requests was called.
// Each user is listed once, because a slow signer may require several requests for one user.
func requests(t *testing.T) func() []string {
	t.Helper()
	clients, err := kubernetes.NewForConfig(provider.Config())
	require.NoError(t, err)
	all := clients.CertificatesV1().CertificateSigningRequests()
	now, err := all.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	watcher, err := all.Watch(t.Context(), metav1.ListOptions{ResourceVersion: now.ResourceVersion})
	require.NoError(t, err)
	users := map[string]bool{}
	done := make(chan struct{})
	var stopping atomic.Bool
	go func() {
		defer close(done)
		for event := range watcher.ResultChan() {
			csr, ok := event.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok {
				if !stopping.Load() {
					users[fmt.Sprintf("the watch ended: %v", event.Object)] = true
				}
				return
			}
			block, _ := pem.Decode(csr.Spec.Request)
			if parsed, err := x509.ParseCertificateRequest(block.Bytes); err != nil {
				users[err.Error()] = true
			} else {
				users[parsed.Subject.CommonName] = true
			}
		}
	}()
	return func() []string {
		stopping.Store(true)
		watcher.Stop()
		<-done
		return slices.Sorted(maps.Keys(users))
	}
}

// TestRequestsThatAreRefused checks that requests of an admitted consumer are refused if the consumer is not entitled
// to them.
func TestRequestsThatAreRefused(t *testing.T) {
	start(t)
	paris := newConsumer(t, "paris")
	tenant := paris.join()
	victim := newConsumer(t, "victim")
	victim.join()
	asked := requests(t)

	slices := map[string]func(*auth.ResourceSlice){
		"masters": func(s *auth.ResourceSlice) {
			s.Spec.CSR = paris.csr(auth.ResourceSliceUser(s.Name, "paris"), "system:masters")
		},
		"as-victim": func(s *auth.ResourceSlice) {
			s.Spec.CSR = paris.csr(auth.ResourceSliceUser(s.Name, "victim"), "victim")
		},
		"for-victim": func(s *auth.ResourceSlice) { s.Spec.ConsumerClusterID = ptr.To(core.ClusterID("victim")) },
		"nobody":     func(s *auth.ResourceSlice) { s.Spec.ConsumerClusterID = nil },
		"admin":      func(s *auth.ResourceSlice) { s.Spec.CSR = paris.csr("kubernetes-admin", "paris") },
		"other-key":  func(s *auth.ResourceSlice) { s.Spec.CSR = victim.csr(auth.ResourceSliceUser(s.Name, "paris"), "paris") },
		"garbage":    func(s *auth.ResourceSlice) { s.Spec.CSR = []byte("csr") },
	}
	for name, change := range slices {
		slice := paris.slice(name, cpu("1"))
		change(slice)
		provider.Create(t, slice)
		assert.NotEmpty(t, paris.decided(slice, auth.AuthenticationCondition, auth.ResourceSliceDenied).Message, name)
		assert.Nil(t, slice.Status.AuthParams, name)
		assert.Nil(t, slice.Status.Condition(auth.ResourcesCondition), name)
	}
	good := paris.slice("good", cpu("1"))
	provider.Create(t, good)
	paris.decided(good, auth.AuthenticationCondition, auth.ResourceSliceAccepted)

	for name, spec := range map[string]auth.RenewSpec{
		"masters":   {ConsumerClusterID: "paris", IdentityType: auth.ControlPlaneIdentityType, CSR: paris.csr("paris", "system:masters")},
		"admin":     {ConsumerClusterID: "paris", IdentityType: auth.ControlPlaneIdentityType, CSR: paris.csr("kubernetes-admin", "liqo.io")},
		"victim":    {ConsumerClusterID: "victim", IdentityType: auth.ControlPlaneIdentityType, CSR: paris.csr("victim", "liqo.io")},
		"other-key": {ConsumerClusterID: "paris", IdentityType: auth.ControlPlaneIdentityType, CSR: victim.csr("paris", "liqo.io")},
		"no-slice":  {ConsumerClusterID: "paris", IdentityType: auth.ResourceSliceIdentityType, CSR: paris.csr(auth.ResourceSliceUser("good", "paris"), "paris")},
		"gone":      {ConsumerClusterID: "paris", IdentityType: auth.ResourceSliceIdentityType, ResourceSliceRef: &corev1.LocalObjectReference{Name: "gone"}, CSR: paris.csr(auth.ResourceSliceUser("gone", "paris"), "paris")},
		"denied":    {ConsumerClusterID: "paris", IdentityType: auth.ResourceSliceIdentityType, ResourceSliceRef: &corev1.LocalObjectReference{Name: "admin"}, CSR: paris.csr(auth.ResourceSliceUser("admin", "paris"), "paris")},
		"other":     {ConsumerClusterID: "paris", IdentityType: auth.ResourceSliceIdentityType, ResourceSliceRef: &corev1.LocalObjectReference{Name: "good"}, CSR: paris.csr(auth.ResourceSliceUser("bad", "paris"), "paris")},
	} {
		renew := &auth.Renew{ObjectMeta: metav1.ObjectMeta{Namespace: paris.namespace, Name: name, Labels: map[string]string{wire.ReplicatedLabel: "true", wire.OriginIDLabel: "rome"}}, Spec: spec}
		provider.Create(t, renew)
		controllertest.Eventually(t, "an Event about Renew "+name, func() error {
			for _, event := range provider.Events(t, paris.namespace, auth.RenewKind, name) {
				if event.Type == corev1.EventTypeWarning {
					return nil
				}
			}
			return errors.New("there is none")
		})
		provider.Get(t, renew, paris.namespace, name)
		assert.Nil(t, renew.Status.AuthParams, name)
	}
	assert.Equal(t, []string{auth.ResourceSliceUser("good", "paris")}, asked(), "the users for whom certificates were requested")

	t.Run("a Tenant that is changed to another key", func(t *testing.T) {
		provider.Patch(t, tenant, fmt.Sprintf(`{"spec":{"publicKey":%q}}`, base64.StdEncoding.EncodeToString(victim.publicKey())))
		provider.AwaitEvent(t, paris.namespace, auth.TenantKind, "paris", "SignatureVerificationFailed")
		provider.Patch(t, good, `{"spec":{"resources":{"cpu":"2"}}}`)
		paris.decided(good, auth.AuthenticationCondition, auth.ResourceSliceDenied)
		paris.decided(good, auth.ResourcesCondition, auth.ResourceSliceDenied)
	})
	quiet(t)
}

// TestOffer checks that an accepted ResourceSlice gets the granted resources and the classes and labels that the
// provider offers, and that the offer follows changes on the provider.
func TestOffer(t *testing.T) {
	start(t, func(o *controllers.Options) {
		offer := &o.Authentication.Offer
		offer.Resources, offer.Limit = corev1.ResourceList{"memory": resource.MustParse("8Gi")}, cpu("10")
		offer.Storage, offer.Labels = true, map[string]string{"topology.kubernetes.io/zone": "eu-1"}
		offer.IngressClasses = []offloading.IngressType{{IngressClassName: "nginx", Default: true}}
		offer.LoadBalancerClasses = []offloading.LoadBalancerType{{LoadBalancerClassName: "public"}}
	})
	fast := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}, Provisioner: "example.com/disk"}
	provider.Create(t, fast)
	provider.Create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, Provisioner: wire.StorageProvisioner})
	oslo := newConsumer(t, "oslo")
	oslo.join()
	slice := oslo.slice("first", cpu("6"))
	provider.Create(t, slice)
	oslo.decided(slice, auth.ResourcesCondition, auth.ResourceSliceAccepted)
	assert.Equal(t, provider.Config().Host, slice.Status.AuthParams.APIServer)
	assert.True(t, slice.Status.Resources.Cpu().Equal(resource.MustParse("6")))
	assert.True(t, slice.Status.Resources.Memory().Equal(resource.MustParse("8Gi")), "as the provider sees fit")
	assert.Equal(t, []offloading.StorageType{{StorageClassName: "fast", Default: true}}, slice.Status.StorageClasses)
	assert.Equal(t, []offloading.IngressType{{IngressClassName: "nginx", Default: true}}, slice.Status.IngressClasses)
	assert.Equal(t, []offloading.LoadBalancerType{{LoadBalancerClassName: "public"}}, slice.Status.LoadBalancerClasses)
	assert.Equal(t, map[string]string{"topology.kubernetes.io/zone": "eu-1"}, slice.Status.NodeLabels)

	t.Run("follows the classes of the cluster", func(t *testing.T) {
		provider.Create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "archive"}, Provisioner: "example.com/tape"})
		controllertest.Eventually(t, "the class", func() error {
			provider.Get(t, slice, slice.Namespace, slice.Name)
			if len(slice.Status.StorageClasses) != 2 {
				return fmt.Errorf("they are %v", slice.Status.StorageClasses)
			}
			return nil
		})
		assert.Equal(t, "archive", slice.Status.StorageClasses[0].StorageClassName)
	})

	t.Run("ends at the limit of the consumer", func(t *testing.T) {
		second := oslo.slice("second", cpu("6"))
		provider.Create(t, second)
		assert.Contains(t, oslo.decided(second, auth.ResourcesCondition, auth.ResourceSliceDenied).Message, "spec.resources[cpu] is 6, but only 4 of the 10")
		oslo.decided(second, auth.AuthenticationCondition, auth.ResourceSliceAccepted)
		provider.Patch(t, second, `{"spec":{"resources":{"cpu":"4"}}}`)
		oslo.decided(second, auth.ResourcesCondition, auth.ResourceSliceAccepted)
		provider.Patch(t, second, `{"spec":{"resources":{"cpu":"5"}}}`)
		controllertest.Eventually(t, "the answer", func() error {
			if message := oslo.decided(second, auth.ResourcesCondition, auth.ResourceSliceAccepted).Message; message == "All requested resources were granted" {
				return errors.New(message)
			}
			return nil
		})
		assert.True(t, second.Status.Resources.Cpu().Equal(resource.MustParse("4")), "what was granted before is kept")
		for name, resources := range map[string]corev1.ResourceList{"negative": cpu("-1"), "silent": {}} {
			slice := oslo.slice(name, resources)
			provider.Create(t, slice)
			oslo.decided(slice, auth.ResourcesCondition, auth.ResourceSliceDenied)
		}
		neighbour := newConsumer(t, "bergen")
		neighbour.join()
		theirs := neighbour.slice("first", cpu("10"))
		provider.Create(t, theirs)
		neighbour.decided(theirs, auth.ResourcesCondition, auth.ResourceSliceAccepted)
	})

	t.Run("leaves other classes to others", func(t *testing.T) {
		special := oslo.slice("special", cpu("1"))
		special.Spec.Class = "gpu"
		provider.Create(t, special)
		oslo.decided(special, auth.AuthenticationCondition, auth.ResourceSliceAccepted)
		assert.Nil(t, special.Status.Condition(auth.ResourcesCondition))
	})
}

// TestAddressOfTheAPIServer checks that the address is detected. If it cannot be detected, an Event states that it must
// be configured.
func TestAddressOfTheAPIServer(t *testing.T) {
	start(t, func(o *controllers.Options) { o.Authentication.APIServer.URL = "" })
	bern := newConsumer(t, "bern")
	tenant := bern.tenant(bern.nonce())
	provider.Create(t, tenant)
	assert.Contains(t, provider.AwaitEvent(t, bern.namespace, auth.TenantKind, "bern", "APIServerAddressUnknown").Note, "apiServer.address")
	// The API server of this test listens on loopback, so it does not publish its address.
	server := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(6443))}}}
	provider.Create(t, server)
	defer provider.Delete(t, server)
	provider.Patch(t, tenant, `{"metadata":{"labels":{"again":"true"}}}`)
	assert.Equal(t, "https://192.0.2.1:6443", bern.admitted(tenant).Status.AuthParams.APIServer)
}

// TestTolerateNoHandshake checks that a consumer for which an administrator has waived the handshake gets credentials
// for its ResourceSlices, but no access for its controllers.
func TestTolerateNoHandshake(t *testing.T) {
	start(t)
	wien := newConsumer(t, "wien")
	tenant := &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: wien.namespace, Name: "wien"}, Spec: auth.TenantSpec{ClusterID: "wien", AuthzPolicy: ptr.To(auth.TolerateNoHandshake)}}
	provider.Create(t, tenant)
	slice := wien.slice("any", cpu("1"))
	provider.Create(t, slice)
	wien.decided(slice, auth.AuthenticationCondition, auth.ResourceSliceAccepted)
	assert.Equal(t, auth.ResourceSliceUser("any", "wien"), wien.who(wien.with(slice.Status.AuthParams)).Username)
	controllertest.Eventually(t, "the status of the Tenant", func() error {
		provider.Get(t, tenant, tenant.Namespace, tenant.Name)
		if tenant.Status.TenantNamespace != wien.namespace {
			return fmt.Errorf("spec.tenantNamespace is %q", tenant.Status.TenantNamespace)
		}
		return nil
	})
	assert.Nil(t, tenant.Status.AuthParams)
	assert.True(t, apierrors.IsNotFound(provider.Client.Get(t.Context(), client.ObjectKey{Namespace: wien.namespace, Name: "liqo-remote-tenant"}, &rbacv1.RoleBinding{})), "access is for the administrator to give")
	foreign := wien.slice("foreign", cpu("1"))
	foreign.Spec.CSR = wien.csr("kubernetes-admin", "wien")
	provider.Create(t, foreign)
	wien.decided(foreign, auth.AuthenticationCondition, auth.ResourceSliceDenied)
}

// TestTenantsOfRefractctlEntitleToNothing checks that the Tenant of a consumer that refractctl has admitted only limits
// the consumer. The consumer gets no certificate for an unproved key.
func TestTenantsOfRefractctlEntitleToNothing(t *testing.T) {
	start(t)
	graz := newConsumer(t, "graz")
	tenant := &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: graz.namespace, Name: "graz", Labels: map[string]string{wire.AdmittedByLabel: wire.AdmittedByRefractctl}},
		Spec: auth.TenantSpec{ClusterID: "graz", AuthzPolicy: ptr.To(auth.TolerateNoHandshake)}}
	provider.Create(t, tenant)
	slice := graz.slice("any", cpu("1"))
	provider.Create(t, slice)
	assert.Contains(t, graz.decided(slice, auth.AuthenticationCondition, auth.ResourceSliceDenied).Message, "has no Tenant")
	assert.Nil(t, slice.Status.AuthParams)
	provider.Get(t, tenant, tenant.Namespace, tenant.Name)
	assert.Empty(t, tenant.Status.TenantNamespace, "package tenantaccess writes it")
}

// TestNonces checks that a nonce is written only into Secrets in tenant namespaces, and that a written nonce is never
// replaced.
func TestNonces(t *testing.T) {
	start(t)
	kiev := newConsumer(t, "kiev")
	nonce := kiev.nonce()
	assert.Len(t, nonce, 88, "64 bytes in base64")
	elsewhere := provider.Namespace(t)
	provider.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: wire.NonceSecret, Labels: map[string]string{wire.NonceLabel: "true", wire.RemoteClusterIDLabel: "kiev"}}})
	assert.Contains(t, provider.AwaitEvent(t, elsewhere, "Secret", wire.NonceSecret, "NonceNotGenerated").Note, "is not the tenant namespace of that cluster")
	provider.Patch(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kiev.namespace, Name: wire.NonceSecret}}, `{"metadata":{"labels":{"touched":"true"}}}`)
	other := newConsumer(t, "lviv")
	assert.NotEqual(t, nonce, other.nonce())
	secret := &corev1.Secret{}
	provider.Get(t, secret, kiev.namespace, wire.NonceSecret)
	assert.Equal(t, nonce, secret.Data[wire.NonceKey])
}

// TestTroubleOfTheProviderDeniesNothing checks that failures of the provider do not cause a denial, because a consumer
// that is denied deletes its access and its virtual node.
func TestTroubleOfTheProviderDeniesNothing(t *testing.T) {
	manager := start(t)
	york := newConsumer(t, "york")
	york.join()
	slice := york.slice("kept", cpu("1"))
	provider.Create(t, slice)
	york.decided(slice, auth.ResourcesCondition, auth.ResourceSliceAccepted)
	manager.Stop(t)

	start(t, func(o *controllers.Options) { o.Authentication.APIServer.URL = "" })
	provider.Patch(t, slice, `{"spec":{"resources":{"cpu":"2"}}}`)
	provider.AwaitEvent(t, york.namespace, auth.ResourceSliceKind, "kept", "APIServerAddressUnknown")
	york.decided(slice, auth.AuthenticationCondition, auth.ResourceSliceAccepted)
	york.decided(slice, auth.ResourcesCondition, auth.ResourceSliceAccepted)
}
