// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/invitation"
	"github.com/refract-project/refract/internal/refractctl/peeringtest"
	"github.com/refract-project/refract/internal/refractctl/tenant"
	"github.com/refract-project/refract/test/support/apistub"
)

// stubs returns a consumer, and a provider that has admitted it.
func stubs(t *testing.T) (rome, milan *peeringtest.Side, a *Address, consumer tenant.Tenant) {
	t.Helper()
	rome, milan = peeringtest.New(t, "rome").Install(t, "10.1.0.0/16"), peeringtest.New(t, "milan").Install(t, "10.2.0.0/16").Play(t)
	inspect := func(s *peeringtest.Side) *cluster.Side {
		side, err := (&cluster.Cluster{Name: s.ID, Config: s.Config, Client: s.Client, Clientset: s.Clientset}).Inspect(t.Context())
		require.NoError(t, err)
		return side
	}
	a = &Address{Consumer: inspect(rome), Provider: inspect(milan), ChosenURL: milan.Config.Host}
	consumer = tenant.Tenant{Provider: a.Provider, Consumer: "rome"}
	writer := cluster.NewWriter(a.Provider)
	require.NoError(t, writer.CreateTenant(t.Context(), a.Consumer))
	require.NoError(t, writer.Apply(t.Context(), consumer.Access()...))
	require.NoError(t, cluster.NewWriter(a.Consumer).CreateTenant(t.Context(), a.Provider))
	return rome, milan, a, consumer
}

// keep stores an identity in the same way as the command.
func keep(t *testing.T, a *Address, kubeconfig []byte) {
	t.Helper()
	require.NoError(t, cluster.NewWriter(a.Consumer).Apply(t.Context(), &corev1.Secret{ObjectMeta: cluster.Meta(wire.TenantNamespace("milan"), SecretName("milan"), nil), Data: map[string][]byte{wire.KubeconfigSecretKey: kubeconfig}}))
}

// TestObtain checks that an identity is reused only if the provider accepts it, at least a third of its lifetime is
// left, it is of the desired kind, and it is for the same server.
func TestObtain(t *testing.T) {
	t.Parallel()
	for name, issuerOf := range map[string]func(tenant.Tenant) Issuer{
		"token":       func(c tenant.Tenant) Issuer { return TokenIssuer{Tenant: c, Lifetime: TokenLifetime} },
		"certificate": func(c tenant.Tenant) Issuer { return CertificateIssuer{Tenant: c} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, milan, a, consumer := stubs(t)
			issuer := issuerOf(consumer)
			first, err := a.Obtain(t.Context(), issuer)
			require.NoError(t, err)
			assert.True(t, first.IsNew)
			assert.Greater(t, time.Until(first.Expires), time.Hour)
			keep(t, a, first.Kubeconfig)
			again, err := a.Obtain(t.Context(), issuer)
			require.NoError(t, err)
			assert.False(t, again.IsNew)
			assert.Equal(t, first.Kubeconfig, again.Kubeconfig)

			later, err := a.reuse(t.Context(), issuer, first.Kubeconfig, time.Now().Add(time.Until(first.Expires)*3/4))
			require.NoError(t, err)
			assert.Nil(t, later, "less than a third of the lifetime is left")
			other := *a
			other.ChosenURL = "https://milan.example"
			elsewhere, err := other.reuse(t.Context(), issuer, first.Kubeconfig, time.Now())
			require.NoError(t, err)
			assert.Nil(t, elsewhere)
			for _, kind := range []Issuer{TokenIssuer{Tenant: consumer, Lifetime: time.Hour}, CertificateIssuer{Tenant: consumer}, CertificateIssuer{Tenant: tenant.Tenant{Provider: a.Provider, Consumer: "turin"}}} {
				reused, err := a.reuse(t.Context(), kind, first.Kubeconfig, time.Now())
				require.NoError(t, err)
				_, isToken := kind.(TokenIssuer)
				_, wasToken := issuer.(TokenIssuer)
				assert.Equal(t, isToken == wasToken && kind != (CertificateIssuer{Tenant: tenant.Tenant{Provider: a.Provider, Consumer: "turin"}}), reused != nil, "%T", kind)
			}
			keep(t, a, []byte("no kubeconfig"))
			repaired, err := a.Obtain(t.Context(), issuer)
			require.NoError(t, err)
			assert.True(t, repaired.IsNew)
			milan.OnRequest(func(apistub.Request) *apistub.Failure { return apistub.Forbidden })
			_, err = a.Obtain(t.Context(), issuer)
			assert.ErrorContains(t, err, "cluster milan: request")
		})
	}
}

// TestTokensOfRecreatedAccounts checks that a token is not reused if its ServiceAccount was recreated, or if the user
// may not review tokens.
func TestTokensOfRecreatedAccounts(t *testing.T) {
	t.Parallel()
	_, milan, a, consumer := stubs(t)
	issuer := TokenIssuer{Tenant: consumer, Lifetime: time.Hour}
	first, err := a.Obtain(t.Context(), issuer)
	require.NoError(t, err)
	for failure, isError := range map[*apistub.Failure]bool{apistub.Forbidden: false, apistub.Broken: true} {
		milan.OnRequest(func(r apistub.Request) *apistub.Failure {
			if r.Resource == "tokenreviews" {
				return failure
			}
			return nil
		})
		reused, err := a.reuse(t.Context(), issuer, first.Kubeconfig, time.Now())
		assert.Equal(t, isError, err != nil)
		assert.Nil(t, reused)
	}
	milan.OnRequest(nil)
	milan.Remove(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), "liqo-tenant-rome", wire.ConsumerServiceAccount)
	require.NoError(t, cluster.NewWriter(a.Provider).Apply(t.Context(), consumer.Access()...))
	reused, err := a.reuse(t.Context(), issuer, first.Kubeconfig, time.Now())
	require.NoError(t, err)
	assert.Nil(t, reused)
}

// TestSecretsOfOthersStay checks that the kubeconfig of another peering is not replaced.
func TestSecretsOfOthersStay(t *testing.T) {
	t.Parallel()
	rome, _, a, consumer := stubs(t)
	rome.Put(t, &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("milan"), Name: SecretName("milan")}})
	_, err := a.Obtain(t.Context(), TokenIssuer{Tenant: consumer, Lifetime: time.Hour})
	require.ErrorContains(t, err, "was not created by refractctl: it belongs to another peering")
	rome.OnRequest(func(apistub.Request) *apistub.Failure { return apistub.Forbidden })
	_, err = a.Obtain(t.Context(), TokenIssuer{Tenant: consumer, Lifetime: time.Hour})
	require.ErrorContains(t, err, "cluster rome: getting Secret liqo-tenant-milan/kubeconfig-controlplane-milan")
}

// TestResume checks that if an invitation has ended, the provider is accessed with the renewed token of the peering,
// provided that this token is still accepted.
func TestResume(t *testing.T) {
	t.Parallel()
	_, milan, a, consumer := stubs(t)
	ended := &invitation.EndedError{Cluster: "milan", Consumer: "rome"}
	config := *milan.Config
	config.BearerToken = "expired"
	invited := &cluster.Cluster{Name: "milan", Config: &config, Invitation: &invitation.Invitation{Consumer: "rome", Provider: "milan", ProviderUID: "uid"}}
	_, err := Resume(t.Context(), a.Consumer, invited, ended)
	require.True(t, errors.Is(err, ended), "there is no other access")
	current, err := a.Obtain(t.Context(), TokenIssuer{Tenant: consumer, Lifetime: time.Hour})
	require.NoError(t, err)
	keep(t, a, current.Kubeconfig)
	side, err := Resume(t.Context(), a.Consumer, invited, ended)
	require.NoError(t, err)
	assert.Equal(t, "milan", side.ID())
	assert.Equal(t, "expired", invited.Config.BearerToken, "the given access is unchanged")
	milan.Remove(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), "liqo-tenant-rome", wire.ConsumerServiceAccount)
	_, err = Resume(t.Context(), a.Consumer, invited, ended)
	require.ErrorContains(t, err, "if it has revoked the access of this cluster, end the peering with refractctl unpeer milan --force")
}

func TestParseKind(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Tokens, Certificates} {
		parsed, err := ParseKind(string(kind))
		require.NoError(t, err)
		assert.Equal(t, kind, parsed)
	}
	_, err := ParseKind("password")
	assert.ErrorContains(t, err, `"password" is unknown: use token or certificate`)
}
