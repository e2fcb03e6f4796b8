// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
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
	"github.com/refract-project/refract/test/support/testenv"
)

var (
	consumer = controllertest.Cluster{ID: "rome", Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}}
	provider = controllertest.Cluster{ID: "milan", Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}}
)

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &consumer, &provider)) }

const (
	// signTimeout limits the wait for a certificate of the test.
	signTimeout  = 30 * time.Second
	tenant       = "liqo-tenant-milan" // of the provider, on the consumer
	remoteTenant = "liqo-tenant-rome"  // of the consumer, on the provider
)

// start starts the controllers of both clusters, as the chart does with authentication.joinProviders on the consumer and
// authentication.enabled on the provider, and creates the tenant namespaces. It returns the manager of the consumer.
func start(t *testing.T) *controllertest.Manager {
	t.Helper()
	manager := rbac.Manager{Namespace: metav1.NamespaceDefault, Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, provider.Grant(t.Context(), append(manager.Authentication(), manager.ResourceSlices()...)...))
	require.NoError(t, consumer.Grant(t.Context(), append(manager.Identities(), manager.ResourceRequests()...)...))
	for _, namespace := range []struct {
		cluster    *controllertest.Cluster
		name, peer string
	}{{&consumer, tenant, "milan"}, {&provider, remoteTenant, "rome"}} {
		err := namespace.cluster.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.name, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: namespace.peer}}})
		require.NoError(t, client.IgnoreAlreadyExists(err))
	}
	// The chart installs the Secret empty.
	err := consumer.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: wire.ClusterKeySecret}})
	require.NoError(t, client.IgnoreAlreadyExists(err))
	provider.StartManager(t, func(o *controllers.Options) {
		o.Authentication.Enabled, o.ResourceSlices.Enabled = true, true
		o.Authentication.APIServer.URL = provider.Config().Host
		o.Authentication.Offer.Resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("110")}
		o.Authentication.Offer.Labels = map[string]string{"region": "A", "provider": "AWS"}
	})
	return consumer.StartManager(t, func(o *controllers.Options) {
		o.Identities.Enabled, o.ResourceRequests.Enabled, o.Installation = true, true, metav1.NamespaceDefault
		o.Negotiation.Settle = 1
		o.Negotiation.AcceptedLabels = []string{"region"}
	})
}

// clusterKey waits for the key of the consumer.
func clusterKey(t *testing.T) (key crypto.Signer, public []byte) {
	t.Helper()
	secret := &corev1.Secret{}
	controllertest.Eventually(t, "the key of the cluster", func() error {
		if err := consumer.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: wire.ClusterKeySecret}, secret); err != nil {
			return err
		}
		var err error
		key, err = clientcert.ParsePrivateKey(secret.Data[wire.PrivateKeyField])
		return err
	})
	return key, secret.Data[wire.PublicKeyField]
}

// await reads the object until it holds.
func await[T client.Object](t *testing.T, c *controllertest.Cluster, object T, namespace, name, what string, holds func(T) bool) T {
	t.Helper()
	controllertest.Eventually(t, what, func() error {
		if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
			return err
		}
		if !holds(object) {
			return fmt.Errorf("%T %s is %+v", object, name, object)
		}
		return nil
	})
	return object
}

// signed has the consumer sign a nonce, as liqoctl does.
func signed(t *testing.T, nonce []byte) []byte {
	t.Helper()
	defer consumer.Delete(t, requestSignature(t, nonce))
	return await(t, &consumer, &corev1.Secret{}, tenant, wire.SignedNonceSecret, "the signature", func(s *corev1.Secret) bool {
		return len(s.Data[wire.SignedNonceKey]) > 0
	}).Data[wire.SignedNonceKey]
}

// requestSignature creates the Secret with the nonce of the provider.
func requestSignature(t *testing.T, nonce []byte) *corev1.Secret {
	t.Helper()
	request := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: wire.SignedNonceSecret, Labels: map[string]string{wire.SignedNonceLabel: "true", wire.RemoteClusterIDLabel: "milan"}},
		Data: map[string][]byte{wire.NonceKey: nonce}}
	consumer.Create(t, request)
	return request
}

// awaitSignature returns the signature of the nonce by the key.
func awaitSignature(t *testing.T, key crypto.Signer, nonce []byte) []byte {
	t.Helper()
	return await(t, &consumer, &corev1.Secret{}, tenant, wire.SignedNonceSecret, "the signature by the key", func(s *corev1.Secret) bool {
		return clientcert.Verify(key.Public(), nonce, s.Data[wire.SignedNonceKey])
	}).Data[wire.SignedNonceKey]
}

// join joins the consumer to the provider with the objects that liqoctl creates, and returns the Identity.
func join(t *testing.T) *auth.Identity {
	t.Helper()
	key, public := clusterKey(t)
	provider.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: remoteTenant, Name: wire.NonceSecret, Labels: map[string]string{wire.NonceLabel: "true", wire.RemoteClusterIDLabel: "rome"}}})
	nonce := await(t, &provider, &corev1.Secret{}, remoteTenant, wire.NonceSecret, "the nonce", func(s *corev1.Secret) bool { return len(s.Data[wire.NonceKey]) > 0 }).Data[wire.NonceKey]
	csr, err := clientcert.New(clientcert.Subject{CommonName: "rome", Organization: wire.ControlPlaneGroup}, key)
	require.NoError(t, err)
	request := &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: remoteTenant, Name: "rome", Labels: map[string]string{wire.RemoteClusterIDLabel: "rome"}},
		Spec: auth.TenantSpec{ClusterID: "rome", PublicKey: public, CSR: csr, Signature: signed(t, nonce)}}
	provider.Create(t, request)
	await(t, &provider, request, remoteTenant, "rome", "the admission", func(tenant *auth.Tenant) bool { return tenant.Status.AuthParams != nil })
	identity := &auth.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "controlplane-milan", Labels: map[string]string{wire.RemoteClusterIDLabel: "milan"}},
		Spec: auth.IdentitySpec{ClusterID: "milan", Type: auth.ControlPlaneIdentityType, AuthParams: *request.Status.AuthParams, Namespace: ptr.To(remoteTenant)}}
	consumer.Create(t, identity)
	return await(t, &consumer, identity, tenant, identity.Name, "the kubeconfig", func(i *auth.Identity) bool { return i.Status.KubeconfigSecretRef != nil })
}

// request creates a ResourceSlice as liqoctl does.
func request(t *testing.T, name string, resources corev1.ResourceList) *auth.ResourceSlice {
	t.Helper()
	slice := &auth.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name,
			Labels:      map[string]string{wire.ReplicationLabel: "true", wire.RemoteIDLabel: "milan", wire.RemoteClusterIDLabel: "milan", "team": "web"},
			Annotations: map[string]string{wire.CreateVirtualNodeAnnotation: "true", "example.com/note": "kept"}},
		Spec: auth.ResourceSliceSpec{Class: auth.DefaultResourceSliceClass, ProviderClusterID: ptr.To(core.ClusterID("milan")), Resources: resources},
	}
	consumer.Create(t, slice)
	return slice
}

// kubeconfigOf returns the server and the certificate of a kubeconfig.
func kubeconfigOf(t *testing.T, secret string) (server string, certificate []byte) {
	t.Helper()
	found := &corev1.Secret{}
	consumer.Get(t, found, tenant, secret)
	config, err := clientcmd.RESTConfigFromKubeConfig(found.Data[wire.KubeconfigSecretKey])
	require.NoError(t, err)
	return config.Host, config.CertData
}

// TestJoiningAProvider follows a consumer from its key to a virtual node, through the renewal of its certificates and a
// changed offer, to the end of the request.
func TestJoiningAProvider(t *testing.T) {
	controllersOfConsumer := start(t)
	identity := join(t)
	assert.Equal(t, "kubeconfig-controlplane-milan", identity.Status.KubeconfigSecretRef.Name)
	server, _ := kubeconfigOf(t, "kubeconfig-controlplane-milan")
	assert.Equal(t, provider.Config().Host, server)

	slice := request(t, "web", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")})
	vn := await(t, &consumer, &offloading.VirtualNode{}, tenant, "web", "the virtual node", func(vn *offloading.VirtualNode) bool { return true })
	consumer.Get(t, slice, tenant, "web")
	assert.Equal(t, auth.ResourceSliceAccepted, slice.Status.Decision(auth.ResourcesCondition))
	assert.True(t, metav1.IsControlledBy(vn, slice))
	assert.Equal(t, "2", vn.Spec.ResourceQuota.Hard.Cpu().String(), "the requested amount")
	assert.Equal(t, "110", vn.Spec.ResourceQuota.Hard.Pods().String(), "the amount that the provider has added")
	assert.Equal(t, map[string]string{"region": "A"}, vn.Spec.Labels, "accepted labels only")
	assert.Equal(t, "kubeconfig-resourceslice-web", vn.Spec.KubeconfigSecretRef.Name)
	assert.Equal(t, "web", vn.Labels[wire.ResourceSliceNameLabel])
	copied := &auth.ResourceSlice{}
	provider.Get(t, copied, remoteTenant, "web")
	assert.Equal(t, map[string]string{"example.com/note": "kept"}, copied.Annotations)
	assert.Equal(t, "web", copied.Labels["team"])

	t.Run("a changed request is sent, and the virtual node follows the answer", func(t *testing.T) {
		consumer.Patch(t, slice, `{"spec":{"resources":{"cpu":"3"}}}`)
		await(t, &consumer, vn, tenant, "web", "the new amount", func(vn *offloading.VirtualNode) bool { return vn.Spec.ResourceQuota.Hard.Cpu().String() == "3" })
	})

	t.Run("certificates are renewed", func(t *testing.T) {
		for _, name := range []string{"controlplane-milan", "resourceslice-web"} {
			identity := &auth.Identity{}
			consumer.Get(t, identity, tenant, name)
			_, before := kubeconfigOf(t, "kubeconfig-"+name)
			consumer.Patch(t, identity, `{"metadata":{"annotations":{"liqo.io/renew":"true"}}}`)
			consumer.AwaitEvent(t, tenant, auth.IdentityKind, name, "CredentialsRenewed")
			controllertest.Eventually(t, "the new certificate", func() error {
				if _, after := kubeconfigOf(t, "kubeconfig-"+name); string(after) != string(before) {
					return nil
				}
				return fmt.Errorf("it is the former one")
			})
			consumer.Get(t, identity, tenant, name)
			assert.Empty(t, identity.Annotations, "the request is done")
			controllertest.Eventually(t, "the Renew to be gone", func() error {
				renews := &auth.RenewList{}
				if err := provider.Client.List(t.Context(), renews, client.InNamespace(remoteTenant)); err != nil || len(renews.Items) == 0 {
					return err
				}
				return fmt.Errorf("there are %d", len(renews.Items))
			})
		}
	})

	t.Run("the address of the provider is the accepted one", func(t *testing.T) {
		provider.PatchStatus(t, copied, `{"status":{"authParams":{"apiServer":"https://evil.example.com:6443"}}}`)
		consumer.Delete(t, &auth.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "resourceslice-web"}})
		await(t, &consumer, &auth.Identity{}, tenant, "resourceslice-web", "the Identity", func(i *auth.Identity) bool {
			return i.Spec.AuthParams.APIServer == provider.Config().Host && i.DeletionTimestamp == nil
		})
	})

	t.Run("a denial is reported, and the virtual node stays", func(t *testing.T) {
		consumerOfProvider := &auth.Tenant{}
		provider.Get(t, consumerOfProvider, remoteTenant, "rome")
		provider.Patch(t, consumerOfProvider, `{"spec":{"tenantCondition":"Cordoned"}}`)
		denied := request(t, "denied", nil)
		assert.Contains(t, consumer.AwaitEvent(t, tenant, auth.ResourceSliceKind, "denied", "ResourceSliceDenied").Note, "is cordoned")
		err := consumer.Client.Get(t.Context(), client.ObjectKeyFromObject(denied), &offloading.VirtualNode{})
		assert.True(t, apierrors.IsNotFound(err), "%v", err)
		consumer.Get(t, vn, tenant, "web")
		assert.Nil(t, vn.DeletionTimestamp)
		provider.Patch(t, consumerOfProvider, `{"spec":{"tenantCondition":"Active"}}`)
		await(t, &consumer, &offloading.VirtualNode{}, tenant, "denied", "the virtual node", func(*offloading.VirtualNode) bool { return true })
		consumer.Delete(t, denied)
		consumer.AwaitGone(t, denied)
	})

	t.Run("a foreign object on the provider is left unchanged", func(t *testing.T) {
		provider.Create(t, &auth.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: remoteTenant, Name: "theirs"}, Spec: auth.ResourceSliceSpec{Class: "other"}})
		theirs := request(t, "theirs", nil)
		assert.Contains(t, consumer.AwaitEvent(t, tenant, auth.ResourceSliceKind, "theirs", "ResourceSliceNotSent").Note, "left unchanged")
		consumer.Delete(t, theirs)
		consumer.AwaitGone(t, theirs)
		provider.Get(t, &auth.ResourceSlice{}, remoteTenant, "theirs")
	})

	t.Run("an answer that keeps changing is followed at intervals", func(t *testing.T) {
		flapping := request(t, "flapping", nil)
		answer := &auth.ResourceSlice{}
		await(t, &provider, answer, remoteTenant, "flapping", "the copy", func(*auth.ResourceSlice) bool { return true })
		const changes = 100
		begun := time.Now()
		for n := range changes {
			provider.PatchStatus(t, answer, fmt.Sprintf(`{"status":{"nodeSelector":{"example.com/n":"%d"}}}`, n))
		}
		await(t, &consumer, flapping, tenant, "flapping", "the last answer", func(s *auth.ResourceSlice) bool {
			return s.Status.NodeSelector["example.com/n"] == fmt.Sprint(changes-1)
		})
		written := len(controllersOfConsumer.Writes.About("resourceslices/flapping/status"))
		assert.LessOrEqual(t, written, 10+1+int(time.Since(begun)/(10*time.Second)), "of %d changes", changes)
		consumer.Delete(t, flapping)
		consumer.AwaitGone(t, flapping)
	})

	t.Run("the virtual node is removed before the request", func(t *testing.T) {
		// The finalizer of a user stands for a drain.
		consumer.Patch(t, vn, `{"metadata":{"finalizers":["example.com/drain"]}}`)
		consumer.Delete(t, slice)
		await(t, &consumer, vn, tenant, "web", "the deletion of the virtual node", func(vn *offloading.VirtualNode) bool { return vn.DeletionTimestamp != nil })
		provider.Get(t, copied, remoteTenant, "web")
		assert.Nil(t, copied.DeletionTimestamp, "the provider would refuse the pods that are drained")
		consumer.Patch(t, vn, `{"metadata":{"finalizers":null}}`)
		provider.AwaitGone(t, copied)
		consumer.AwaitGone(t, slice)
	})

	t.Run("the request ends with its tenant namespace", func(t *testing.T) {
		late := request(t, "late", nil)
		await(t, &consumer, &offloading.VirtualNode{}, tenant, "late", "the virtual node", func(*offloading.VirtualNode) bool { return true })
		consumer.Delete(t, identity)
		consumer.AwaitGone(t, identity)
		consumer.Patch(t, late, `{"spec":{"providerClusterID":"turin"}}`)
		consumer.Delete(t, late)
		consumer.AwaitGone(t, late)
		provider.AwaitGone(t, &auth.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: remoteTenant, Name: "late"}})
		consumer.AwaitGone(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "kubeconfig-controlplane-milan"}})
	})
}

// TestNoncesAreTheOnlyTextsThatAreSigned checks that whoever may write Secrets cannot have other texts signed.
func TestNoncesAreTheOnlyTextsThatAreSigned(t *testing.T) {
	start(t)
	key, _ := clusterKey(t)
	csr, err := clientcert.New(clientcert.Subject{CommonName: "rome", Organization: wire.ControlPlaneGroup}, key)
	require.NoError(t, err)
	for name, text := range map[string][]byte{"PEM": csr, "a sentence": []byte("refract.io: the next client certificate\n"), "short": []byte("YWJj"), "long": []byte(strings.Repeat("a", 257))} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: wire.SignedNonceSecret, Labels: map[string]string{wire.SignedNonceLabel: "true", wire.RemoteClusterIDLabel: "milan"}},
				Data: map[string][]byte{wire.NonceKey: text}}
			consumer.Create(t, secret)
			consumer.AwaitEvent(t, tenant, "Secret", secret.Name, "NonceNotSigned")
			consumer.Get(t, secret, tenant, secret.Name)
			assert.NotContains(t, secret.Data, wire.SignedNonceKey)
			consumer.Delete(t, secret)
			for _, event := range consumer.Events(t, tenant, "Secret", secret.Name) {
				consumer.Delete(t, &event)
			}
		})
	}
	other := consumer.Namespace(t)
	consumer.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: wire.SignedNonceSecret, Labels: map[string]string{wire.SignedNonceLabel: "true", wire.RemoteClusterIDLabel: "milan"}},
		Data: map[string][]byte{wire.NonceKey: []byte(base64.StdEncoding.EncodeToString(make([]byte, 64)))}})
	assert.Contains(t, consumer.AwaitEvent(t, other, "Secret", wire.SignedNonceSecret, "NonceNotSigned").Note, "is not the tenant namespace")
	nonce := []byte(base64.StdEncoding.EncodeToString(make([]byte, 64)))
	assert.True(t, clientcert.Verify(key.Public(), nonce, signed(t, nonce)))
}

// TestIdentitiesThatAreRefused checks that no kubeconfig is written for an Identity that cannot be used.
func TestIdentitiesThatAreRefused(t *testing.T) {
	start(t)
	key, _ := clusterKey(t)
	issue := func(key crypto.Signer, subject clientcert.Subject) []byte {
		csr, err := clientcert.New(subject, key)
		require.NoError(t, err)
		certificate, err := clientcert.Sign(t.Context(), provider.Client, provider.Client, clientcert.Request{PEM: csr, GenerateName: "test-", Reason: "Test", Message: "test", Timeout: signTimeout})
		require.NoError(t, err)
		return certificate
	}
	another, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	own := clientcert.Subject{CommonName: "rome", Organization: wire.ControlPlaneGroup}
	good := auth.AuthParams{APIServer: provider.Config().Host, SignedCRT: issue(key, own)}
	change := func(change func(*auth.IdentitySpec)) auth.IdentitySpec {
		spec := auth.IdentitySpec{ClusterID: "milan", Type: auth.ControlPlaneIdentityType, AuthParams: good}
		change(&spec)
		return spec
	}
	for name, refused := range map[string]struct {
		spec auth.IdentitySpec
		says string
	}{
		"address":           {change(func(s *auth.IdentitySpec) { s.AuthParams.APIServer = "https://0.0.0.0:6443" }), "no machine has the address"},
		"http":              {change(func(s *auth.IdentitySpec) { s.AuthParams.APIServer = "http://milan.example.com" }), "must be an https URL"},
		"proxy":             {change(func(s *auth.IdentitySpec) { s.AuthParams.ProxyURL = ptr.To("http://proxy.example.com") }), "proxyURL"},
		"aws":               {change(func(s *auth.IdentitySpec) { s.AuthParams.AwsConfig = &auth.AwsConfig{} }), "AWS IAM"},
		"authority":         {change(func(s *auth.IdentitySpec) { s.AuthParams.CA = []byte("no") }), "spec.authParams.ca"},
		"another-key":       {change(func(s *auth.IdentitySpec) { s.AuthParams.SignedCRT = issue(another, own) }), "for the key of this cluster"},
		"another-user":      {change(func(s *auth.IdentitySpec) { s.AuthParams.SignedCRT = issue(key, clientcert.Consumer("rome")) }), "CN=rome,O=liqo.io"},
		"another-cluster":   {change(func(s *auth.IdentitySpec) { s.ClusterID = "turin" }), "is not the tenant namespace of that cluster"},
		"another-kind-user": {change(func(s *auth.IdentitySpec) { s.Type = auth.ResourceSliceIdentityType }), "for the key of this cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			consumer.Create(t, &auth.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}, Spec: refused.spec})
			assert.Contains(t, consumer.AwaitEvent(t, tenant, auth.IdentityKind, name, "InvalidIdentity").Note, refused.says)
			err := consumer.Client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "kubeconfig-" + name}, &corev1.Secret{})
			assert.True(t, apierrors.IsNotFound(err), "%v", err)
		})
	}

	t.Run("a Secret of somebody else is left unchanged", func(t *testing.T) {
		consumer.Create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "kubeconfig-taken"}, Data: map[string][]byte{"kubeconfig": []byte("theirs")}})
		consumer.Create(t, &auth.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "taken"}, Spec: change(func(*auth.IdentitySpec) {})})
		consumer.AwaitEvent(t, tenant, auth.IdentityKind, "taken", "KubeconfigNotWritten")
		secret := &corev1.Secret{}
		consumer.Get(t, secret, tenant, "kubeconfig-taken")
		assert.Equal(t, "theirs", string(secret.Data["kubeconfig"]))
	})

	t.Run("a key that was emptied is replaced, and the certificates for it are refused", func(t *testing.T) {
		identity := &auth.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "lost-key"}, Spec: change(func(*auth.IdentitySpec) {})}
		consumer.Create(t, identity)
		consumer.AwaitEvent(t, tenant, auth.IdentityKind, identity.Name, "KubeconfigWritten")
		message := []byte("a-nonce-that-is-signed-by-both")
		request := requestSignature(t, message)
		defer consumer.Delete(t, request)
		former := awaitSignature(t, key, message)
		consumer.Patch(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: wire.ClusterKeySecret}}, `{"data":null}`)
		consumer.Patch(t, identity, `{"metadata":{"annotations":{"example.com/look":"again"}}}`)
		assert.Contains(t, consumer.AwaitEvent(t, tenant, auth.IdentityKind, identity.Name, "InvalidIdentity").Note, "run liqoctl peer again")
		replaced, _ := clusterKey(t)
		assert.NotEqual(t, key, replaced)
		// liqoctl peer leaves the Secret with the nonce as it is. The signature of the former key is replaced.
		assert.NotEqual(t, former, awaitSignature(t, replaced, message))
	})

	t.Run("the controller manager has access to no Secrets outside of tenant namespaces", func(t *testing.T) {
		for _, namespace := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault, ""} {
			consumer.AwaitAccess(t, authorizationv1.SubjectAccessReviewSpec{User: controllertest.ManagerUser,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: namespace, Name: "other"}}, false)
		}
		config, err := consumer.ConfigFor(controllertest.ManagerUser)
		require.NoError(t, err)
		manager, err := client.New(config, client.Options{Scheme: consumer.Client.Scheme()})
		require.NoError(t, err)
		subject := rbac.User(controllertest.ManagerUser)
		for namespace, user := range map[string]string{metav1.NamespaceSystem: controllertest.ManagerUser, tenant: "eve"} {
			subject.Name = user
			binding := rbac.Manager{Subject: subject}.CredentialsIn(namespace)
			binding.Name = "more"
			err := manager.Create(t.Context(), binding)
			assert.True(t, apierrors.IsForbidden(err), "in %s to %s: %v", namespace, user, err)
		}
		err = manager.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "kubeconfig-more"}})
		assert.True(t, apierrors.IsForbidden(err), "%v", err)
		plain := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "plain"}, Data: map[string][]byte{"password": []byte("x")}}
		consumer.Create(t, plain)
		plain.Data["password"] = []byte("y")
		err = manager.Update(t.Context(), plain)
		assert.True(t, apierrors.IsForbidden(err), "%v", err)
	})

	t.Run("requests without an Identity are denied, and requests in other namespaces are refused", func(t *testing.T) {
		slice := request(t, "early", nil)
		consumer.AwaitEvent(t, tenant, auth.ResourceSliceKind, "early", "NotSent")
		consumer.Delete(t, slice)
		consumer.AwaitGone(t, slice)
		wrong := &auth.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: consumer.Namespace(t), Name: "wrong", Labels: slice.Labels}}
		consumer.Create(t, wrong)
		consumer.AwaitEvent(t, wrong.Namespace, auth.ResourceSliceKind, "wrong", "InvalidResourceSlice")
	})
}
