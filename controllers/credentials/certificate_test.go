// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package credentials_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/credentials"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/rbac"
)

// renewals starts the controllers of the provider as with authentication.enabled in the chart.
func renewals(t *testing.T) *controllertest.Manager {
	t.Helper()
	return provider.StartManager(t, func(o *controllers.Options) {
		o.Authentication.Enabled, o.Authentication.APIServer.URL = true, provider.Config().Host
	})
}

// certified returns a peering of rome with milan. milan has signed a certificate for rome, and has recorded its key.
func certified(t *testing.T, id string, renewed bool) *peering {
	t.Helper()
	clients, err := kubernetes.NewForConfig(provider.Config())
	require.NoError(t, err)
	p := &peering{T: t, id: id, client: clients, tenant: wire.TenantNamespace("rome"), here: consumer.Namespace(t)}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	fingerprint, err := clientcert.Fingerprint(key.Public())
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.tenant, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "rome"}}}
	require.NoError(t, client.IgnoreAlreadyExists(provider.Client.Create(t.Context(), namespace)))
	provider.Patch(t, namespace, `{"metadata":{"annotations":{"`+wire.ConsumerKeysAnnotation+`":"`+fingerprint+`"}}}`)
	access, manager := rbac.Peer("", "rome"), rbac.Manager{Namespace: metav1.NamespaceDefault, Subject: rbac.User(controllertest.ManagerUser)}
	require.NoError(t, provider.Grant(t.Context(), slices.Concat(access.Objects(), manager.Authentication(), []rbac.Object{access.TenantNamespace(p.tenant), access.Renewal(p.tenant)})...))
	p.awaitRenewalAllowed(true)
	csr, err := clientcert.New(clientcert.Consumer("rome"), key)
	require.NoError(t, err)
	signed, err := clientcert.Sign(t.Context(), provider.Client, provider.Client, clientcert.Request{PEM: csr, GenerateName: "test-", Reason: "Test", Message: "test", Timeout: time.Minute})
	require.NoError(t, err)
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	require.NoError(t, err)

	require.NoError(t, consumer.Grant(t.Context(), rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}.Provider(p.here, secretName)...))
	p.store(&clientcmdapi.AuthInfo{ClientCertificateData: signed, ClientKeyData: keyPEM})
	if renewed {
		consumer.Patch(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.here, Name: secretName}}, `{"metadata":{"annotations":{"`+wire.RenewedAnnotation+`":"true"}}}`)
	}
	vn := &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: p.here, Name: id},
		Spec: offloading.VirtualNodeSpec{ClusterID: core.ClusterID(id), KubeconfigSecretRef: &corev1.LocalObjectReference{Name: secretName}}}
	consumer.Create(t, vn)
	// Otherwise the VirtualNode's credentials would be renewed in later tests.
	t.Cleanup(func() { _ = consumer.Client.Delete(context.Background(), vn) })
	return p
}

// awaitRenewalAllowed waits until a permission that was granted or revoked has taken effect on the provider's API
// server.
func (p *peering) awaitRenewalAllowed(allowed bool) {
	p.Helper()
	provider.AwaitAccess(p.T, authorizationv1.SubjectAccessReviewSpec{User: "rome", Groups: []string{"rome"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: p.tenant, Verb: "create", Group: auth.GroupVersion.Group, Resource: "renews"}}, allowed)
}

// pair returns the certificate in a kubeconfig, with its key.
func pair(t *testing.T, kubeconfig []byte) tls.Certificate {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	found, err := tls.X509KeyPair(config.CertData, config.KeyData)
	require.NoError(t, err)
	return found
}

// nothingLeft checks that there is no Renew on the provider.
func (p *peering) nothingLeft() {
	p.Helper()
	renews := &auth.RenewList{}
	require.NoError(p, provider.Client.List(p.Context(), renews, client.InNamespace(p.tenant)))
	assert.Empty(p, renews.Items)
}

const year = 365 * 24 * time.Hour

func TestACertificateIsRenewedWhenAThirdOfItsLifeIsOver(t *testing.T) {
	renewals(t)
	manual := certified(t, "milan-manual", false)
	kept := manual.stored()
	p := certified(t, "milan-h", true)
	first := p.stored()
	young := credentials.NewController(consumer.Client, consumer.Client, events.NewFakeRecorder(1), credentials.Options{ClusterID: "rome", Clock: clock.RealClock{}})
	_, err := young.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: p.here, Name: p.id}})
	require.NoError(t, err)
	assert.Equal(t, string(first), string(p.stored()), "a new certificate was renewed")
	after(t, year/2)
	assert.Equal(t, "rome", p.awaitRenewal(first))
	former, now := pair(t, first), pair(t, p.stored())
	assert.False(t, clientcert.Same(former.Leaf.PublicKey, now.Leaf.PublicKey), "the key is another one")
	namespace := &corev1.Namespace{}
	provider.Get(t, namespace, "", p.tenant)
	assert.True(t, clientcert.ParseKeys(namespace.Annotations[wire.ConsumerKeysAnnotation]).Has(now.Leaf.PublicKey))
	p.nothingLeft()
	assert.Equal(t, string(kept), string(manual.stored()), "nobody has said that milan renews it")
	assert.Empty(t, consumer.Events(t, manual.here, "VirtualNode", manual.id))
}

func TestACertificateThatCannotBeRenewedStays(t *testing.T) {
	for name, test := range map[string]struct {
		age     time.Duration
		prepare func(t *testing.T, p *peering)
		want    []string
	}{
		"refused": {year / 2, func(t *testing.T, p *peering) {
			renewals(t)
			provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.tenant}}, `{"metadata":{"annotations":{"`+wire.ConsumerKeysAnnotation+`":null}}}`)
		}, []string{"expire at", "the provider refused the renewal: AccessWithdrawn", "If this continues, run refractctl peer --credentials=certificate again"}},
		"forbidden": {year / 2, func(t *testing.T, p *peering) {
			renewals(t)
			provider.Delete(t, rbac.Peer("", "rome").Renewal(p.tenant).(client.Object))
			p.awaitRenewalAllowed(false)
		}, []string{"expire at", "forbidden", "run refractctl peer --credentials=certificate again"}},
		"silent": {year / 2, func(*testing.T, *peering) {}, []string{"expire at", "has not answered Renew", "authentication.enabled"}},
		"expired": {2 * year, func(t *testing.T, p *peering) {
			secret := &corev1.Secret{}
			consumer.Get(t, secret, p.here, secretName)
			config, err := clientcmd.Load(secret.Data[wire.KubeconfigSecretKey])
			require.NoError(t, err)
			config.Clusters["milan"].Server = "https://127.0.0.1:1" // an address that is not reachable
			secret.Data[wire.KubeconfigSecretKey], err = clientcmd.Write(*config)
			require.NoError(t, err)
			require.NoError(t, consumer.Client.Update(t.Context(), secret))
		}, []string{"have expired at", "run refractctl peer --credentials=certificate again"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := certified(t, "milan-"+name, true)
			test.prepare(t, p)
			first := p.stored()
			renewing := after(t, test.age)
			event := consumer.AwaitEvent(t, p.here, "VirtualNode", p.id, "CredentialsNotRenewed")
			for _, want := range test.want {
				assert.Contains(t, event.Note, want)
			}
			assert.Equal(t, string(first), string(p.stored()))
			renewing.Stop(t) // Stop may interrupt another attempt
			p.nothingLeft()
		})
	}
}
