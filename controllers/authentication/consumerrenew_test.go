// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/rbac"
)

// joined is a consumer that refractctl peer has joined with a certificate.
type joined struct {
	*consumer
	binding *rbacv1.RoleBinding
}

func newJoined(t *testing.T, id string) *joined {
	t.Helper()
	c := &joined{consumer: newConsumer(t, id)}
	fingerprint, err := clientcert.Fingerprint(c.key.Public())
	require.NoError(t, err)
	c.annotate(fingerprint)
	access := rbac.Peer("", id)
	c.binding = access.TenantNamespace(c.namespace).(*rbacv1.RoleBinding)
	require.NoError(t, provider.Grant(t.Context(), append(access.Objects(), c.binding, access.Renewal(c.namespace))...))
	return c
}

func (c *joined) annotate(keys string) {
	c.Helper()
	value := `null`
	if keys != "" {
		value = `"` + keys + `"`
	}
	provider.Patch(c.T, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}, `{"metadata":{"annotations":{"`+wire.ConsumerKeysAnnotation+`":`+value+`}}}`)
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return key
}

// first lets the provider sign the consumer's first certificate, as refractctl peer does.
func (c *joined) first() *auth.AuthParams {
	c.Helper()
	signed, err := clientcert.Sign(c.Context(), provider.Client, provider.Client, clientcert.Request{PEM: c.csr(c.id, c.id), GenerateName: "test-", Reason: "Test", Message: "test", Timeout: time.Minute})
	require.NoError(c, err)
	return c.params(signed)
}

func (c *joined) params(signed []byte) *auth.AuthParams {
	return &auth.AuthParams{APIServer: provider.Config().Host, CA: provider.Config().CAData, SignedCRT: signed}
}

// renew requests a certificate for the key next. The request is signed with the key present.
func (c *joined) renew(next, present crypto.Signer, subject clientcert.Subject) *auth.Renew {
	c.Helper()
	csr, err := clientcert.New(subject, next)
	require.NoError(c, err)
	proof, err := clientcert.Prove(csr, present)
	require.NoError(c, err)
	public, err := clientcert.EncodeKey(present.Public())
	require.NoError(c, err)
	return &auth.Renew{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: wire.ConsumerRenew, Annotations: map[string]string{wire.RenewalProofAnnotation: base64.StdEncoding.EncodeToString(proof)}},
		Spec: auth.RenewSpec{ConsumerClusterID: core.ClusterID(c.id), IdentityType: auth.ControlPlaneIdentityType, PublicKey: public, CSR: csr}}
}

// answered waits for the status of the Renew, which it reads with the consumer's client.
func (c *joined) answered(opened client.Client, renew *auth.Renew) auth.RenewStatus {
	c.Helper()
	controllertest.Eventually(c.T, "an answer", func() error {
		if err := opened.Get(c.Context(), client.ObjectKeyFromObject(renew), renew); err != nil {
			return err
		}
		if renew.Status.AuthParams == nil && renew.Status.Refusal == "" {
			return errors.New("there is none")
		}
		return nil
	})
	return renew.Status
}

func (c *joined) recorded() clientcert.Keys {
	c.Helper()
	namespace := &corev1.Namespace{}
	provider.Get(c.T, namespace, "", c.namespace)
	return clientcert.ParseKeys(namespace.Annotations[wire.ConsumerKeysAnnotation])
}

// TestConsumersRenewTheirCertificates checks that a consumer without a Tenant can renew its certificate repeatedly,
// each time with a new key. Each certificate gives the consumer the same permissions.
func TestConsumersRenewTheirCertificates(t *testing.T) {
	start(t)
	rome := newJoined(t, "lyon")
	keys := []crypto.Signer{rome.key, newKey(t), newKey(t), newKey(t)}
	opened := rome.with(rome.first())
	for i, next := range keys[1:3] {
		renew := rome.renew(next, keys[i], clientcert.Consumer("lyon"))
		require.NoError(t, opened.Create(t.Context(), renew))
		status := rome.answered(opened, renew)
		require.NotNil(t, status.AuthParams, status.Refusal)
		provider.AwaitEvent(t, rome.namespace, auth.RenewKind, wire.ConsumerRenew, "CertificateRenewed")
		assert.True(t, rome.recorded().Has(keys[i].Public()), "the answer may be lost")
		assert.True(t, rome.recorded().Has(next.Public()))
		require.NoError(t, opened.Delete(t.Context(), renew))
		rome.key = next
		opened = rome.with(rome.params(status.AuthParams.SignedCRT))
		who := rome.who(opened)
		assert.Equal(t, "lyon", who.Username)
		assert.Equal(t, []string{"lyon", "system:authenticated"}, who.Groups)
	}
	assert.False(t, rome.recorded().Has(keys[0].Public()), "its successor has asked since")
	renew := rome.renew(keys[3], keys[0], clientcert.Consumer("lyon"))
	require.NoError(t, opened.Create(t.Context(), renew))
	assert.Contains(t, rome.answered(opened, renew).Refusal, "UnknownKey")

	forged := renew.DeepCopy()
	forged.Status = auth.RenewStatus{AuthParams: &auth.AuthParams{}}
	assert.True(t, apierrors.IsForbidden(opened.Status().Update(t.Context(), forged)), "the answer is the provider's")
	assert.True(t, apierrors.IsForbidden(opened.Update(t.Context(), renew.DeepCopy())))
	assert.True(t, apierrors.IsForbidden(opened.List(t.Context(), &auth.RenewList{}, client.InNamespace(rome.namespace))))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: rome.namespace}}
	assert.True(t, apierrors.IsForbidden(opened.Patch(t.Context(), namespace, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"a":"b"}}}`)))), "nor is the record the consumer's")
	quiet(t)
}

// TestACordonedConsumerRenewsItsCertificate checks that the cordon of a consumer that refractctl has admitted only
// affects its pods. Its certificate is renewed, because the consumer would otherwise lose its access.
func TestACordonedConsumerRenewsItsCertificate(t *testing.T) {
	start(t)
	nice := newJoined(t, "nice")
	tenant := &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: nice.namespace, Name: "nice", Labels: map[string]string{wire.AdmittedByLabel: wire.AdmittedByRefractctl}},
		Spec: auth.TenantSpec{ClusterID: "nice", TenantCondition: auth.TenantCordoned}}
	provider.Create(t, tenant)
	renew := nice.renew(newKey(t), nice.key, clientcert.Consumer("nice"))
	provider.Create(t, renew)
	assert.NotNil(t, nice.answered(provider.Client, renew).AuthParams)
	provider.Delete(t, renew)
	provider.Patch(t, tenant, `{"spec":{"tenantCondition":"Drained"}}`)
	again := nice.renew(newKey(t), nice.key, clientcert.Consumer("nice"))
	provider.Create(t, again)
	assert.Contains(t, nice.answered(provider.Client, again).Refusal, "is Drained")
}

// TestRenewalsThatAreRefused checks that write access to a tenant namespace is not sufficient to get a certificate, and
// that a consumer only gets certificates that it is entitled to.
func TestRenewalsThatAreRefused(t *testing.T) {
	manager := start(t)
	thief := newKey(t)
	own := func(c *joined) *auth.Renew { return c.renew(newKey(t), c.key, clientcert.Consumer(c.id)) }
	tenant := func(c *joined, condition auth.TenantCondition) {
		provider.Create(c.T, &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.id, Finalizers: []string{"example.com/stays"}},
			Spec: auth.TenantSpec{ClusterID: core.ClusterID(c.id), TenantCondition: condition}})
		c.Cleanup(func() {
			_ = provider.Client.Patch(t.Context(), &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.id}}, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		})
	}
	for name, test := range map[string]struct {
		ask            func(c *joined) *auth.Renew
		reason, refers string
	}{
		"user": {func(c *joined) *auth.Renew {
			return c.renew(newKey(t), c.key, clientcert.Subject{CommonName: "kubernetes-admin", Organization: c.id})
		}, "InvalidCSR", "its subject is"},
		"group": {func(c *joined) *auth.Renew {
			return c.renew(newKey(t), c.key, clientcert.Subject{CommonName: c.id, Organization: "system:masters"})
		}, "InvalidCSR", "its subject is"},
		"controllers": {func(c *joined) *auth.Renew {
			return c.renew(newKey(t), c.key, clientcert.Subject{CommonName: c.id, Organization: wire.ControlPlaneGroup})
		}, "InvalidCSR", "its subject is"},
		"planted": {func(c *joined) *auth.Renew { return c.renew(thief, thief, clientcert.Consumer(c.id)) }, "UnknownKey", "is not one of the recorded keys"},
		"keyless": {func(c *joined) *auth.Renew {
			renew := own(c)
			renew.Spec.PublicKey = nil
			return renew
		}, "UnknownKey", "spec.publicKey"},
		"borrowed": {func(c *joined) *auth.Renew {
			renew, honest := c.renew(thief, thief, clientcert.Consumer(c.id)), own(c)
			renew.Spec.PublicKey = honest.Spec.PublicKey
			return renew
		}, "ProofVerificationFailed", "only the holder of the present certificate"},
		"replayed": {func(c *joined) *auth.Renew {
			renew, honest := c.renew(thief, thief, clientcert.Consumer(c.id)), own(c)
			renew.Spec.PublicKey, renew.Annotations = honest.Spec.PublicKey, honest.Annotations
			return renew
		}, "ProofVerificationFailed", "only the holder of the present certificate"},
		"unproved": {func(c *joined) *auth.Renew {
			renew := own(c)
			renew.Annotations = nil
			return renew
		}, "ProofVerificationFailed", wire.RenewalProofAnnotation},
		"stranger": {func(c *joined) *auth.Renew {
			renew := own(c)
			renew.Spec.ConsumerClusterID = "paris"
			return renew
		}, "InvalidRenew", "spec.consumerClusterID"},
		"share": {func(c *joined) *auth.Renew {
			renew := own(c)
			renew.Spec.IdentityType = auth.ResourceSliceIdentityType
			return renew
		}, "InvalidRenew", "spec.identityType"},
		"elsewhere": {func(c *joined) *auth.Renew {
			provider.Patch(c.T, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}, `{"metadata":{"labels":{"`+wire.TenantNamespaceLabel+`":null}}}`)
			return own(c)
		}, "InvalidRenew", "is not the tenant namespace"},
		"unrecorded": {func(c *joined) *auth.Renew {
			c.annotate("")
			return own(c)
		}, "AccessWithdrawn", "refractctl peer --credentials=certificate"},
		"unbound": {func(c *joined) *auth.Renew {
			provider.Delete(c.T, c.binding)
			return own(c)
		}, "AccessWithdrawn", "RoleBinding"},
		"rebound": {func(c *joined) *auth.Renew {
			provider.Patch(c.T, c.binding, `{"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"paris"}]}`)
			return own(c)
		}, "AccessWithdrawn", "RoleBinding"},
		"cordoned": {func(c *joined) *auth.Renew {
			tenant(c, auth.TenantCordoned)
			return own(c)
		}, "AccessWithdrawn", "is Cordoned"},
		"drained": {func(c *joined) *auth.Renew {
			tenant(c, auth.TenantDrained)
			return own(c)
		}, "AccessWithdrawn", "is Drained"},
		"leaving": {func(c *joined) *auth.Renew {
			tenant(c, auth.TenantActive)
			provider.Delete(c.T, &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.id}})
			return own(c)
		}, "AccessWithdrawn", "is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newJoined(t, "refused-"+name)
			before, requests := c.recorded(), len(manager.Writes.About("/certificatesigningrequests"))
			renew := test.ask(c)
			provider.Create(t, renew)
			c.isRefused(renew, test.reason, test.refers)
			if name != "unrecorded" {
				assert.Equal(t, before, c.recorded())
			}
			assert.Len(t, manager.Writes.About("/certificatesigningrequests"), requests, "nothing may be signed")
		})
	}
	t.Run("ending", func(t *testing.T) {
		c := newJoined(t, "refused-ending")
		renew := own(c)
		spec := renew.Spec
		renew.Spec.CSR, renew.Finalizers = nil, []string{"example.com/stays"} // the certificate request is added later
		provider.Create(t, renew)
		provider.Delete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}})
		provider.Patch(t, renew, `{"spec":{"csr":"`+base64.StdEncoding.EncodeToString(spec.CSR)+`"}}`)
		controllertest.Eventually(t, "a refusal", func() error {
			provider.Get(t, renew, renew.Namespace, renew.Name)
			if renew.Status.Refusal == "" {
				return errors.New("there is none")
			}
			return nil
		})
		assert.Contains(t, renew.Status.Refusal, "is being deleted") // Events can no longer be created there
		provider.Patch(t, renew, `{"metadata":{"finalizers":null}}`)
	})
	quiet(t)
}

// isRefused waits until a Renew is refused, both in its status and in an Event.
func (c *joined) isRefused(renew *auth.Renew, reason, refers string) {
	c.Helper()
	status := c.answered(provider.Client, renew)
	assert.Nil(c, status.AuthParams)
	assert.Contains(c, status.Refusal, reason)
	assert.Contains(c, status.Refusal, refers)
	event := provider.AwaitEvent(c.T, renew.Namespace, auth.RenewKind, renew.Name, reason)
	assert.Contains(c, event.Note, refers)
}
