// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/invitation"
	"github.com/refract-project/refract/internal/refractctl/peeringtest"
)

// TestWhereATokenIsSent checks that the token of a peering is sent only to the API server of the provider, even if
// another file names the provider.
func TestWhereATokenIsSent(t *testing.T) {
	inUse := &rest.Config{Host: "https://milan.example", BearerToken: "renewed", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("milan")}}
	for name, test := range map[string]struct {
		config rest.Config
		want   bool
	}{
		"another address of the same authority":    {rest.Config{Host: "https://10.0.0.1", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("milan")}}, true},
		"the same address, a public authority":     {rest.Config{Host: "https://milan.example"}, true},
		"another address, a public authority":      {rest.Config{Host: "https://evil.example"}, false},
		"another address of another authority":     {rest.Config{Host: "https://evil.example", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("evil")}}, false},
		"the same address, whoever answers there":  {rest.Config{Host: "https://milan.example", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, false},
		"the same address of another authority":    {rest.Config{Host: "https://milan.example", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("evil")}}, false},
		"the same authority, which is not checked": {rest.Config{Host: "https://evil.example", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, false},
	} {
		assert.Equal(t, test.want, leadsTo(&test.config, inUse), name)
	}
}

// TestTokenIsSentToTheProviderAlone checks that the token of a peering is not sent to another server if an expired
// invitation was changed to lead to this server.
func TestTokenIsSentToTheProviderAlone(t *testing.T) {
	stub := peeringtest.New(t, "rome")
	rome := side("rome", nil)
	rome.Client = stub.Client
	stub.Put(t, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: wire.TenantNamespace("milan")}})
	var requests []string
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		requests = append(requests, request.Header.Get("Authorization"))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer elsewhere.Close()
	kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: milan, contexts: [{name: milan, context: {cluster: milan, user: rome}}],
		clusters: [{name: milan, cluster: {server: "https://milan.example", certificate-authority-data: %s}}], users: [{name: rome, user: {token: renewed}}]}`,
		base64.StdEncoding.EncodeToString([]byte("milan")))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("milan"), Name: SecretName("milan")}, Data: map[string][]byte{wire.KubeconfigSecretKey: []byte(kubeconfig)}}
	require.NoError(t, rome.Client.Create(t.Context(), secret))
	invited := &cluster.Cluster{Name: "milan", Invitation: &invitation.Invitation{Consumer: "rome", Provider: "milan"}, Config: &rest.Config{Host: elsewhere.URL, BearerToken: "expired",
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: elsewhere.Certificate().Raw})}}}
	_, err := Resume(t.Context(), rome, invited, &invitation.EndedError{Cluster: "milan", Consumer: "rome"})
	assert.Error(t, err)
	assert.Empty(t, requests)
}
