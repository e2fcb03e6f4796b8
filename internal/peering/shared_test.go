// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/release"
	"github.com/refract-project/refract/internal/testenv"
)

// A peer with a Tenant in this cluster, as created for consumers that run Liqo, keeps its tenant namespace when it is
// no longer a provider.
func TestTenantOfAPeerIsLeft(t *testing.T) {
	rome := side(t, testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true})[0])
	rome.installation = &release.Installation{ClusterID: "rome", Namespace: "liqo"}
	milan := &Cluster{Name: "milan", installation: &release.Installation{ClusterID: "milan"}}
	require.NoError(t, rome.makeTenant(t.Context(), milan))
	tenant := &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Spec: auth.TenantSpec{ClusterID: "milan"}}
	require.NoError(t, rome.Client.Create(t.Context(), tenant))
	o := &Options{Consumer: rome, Provider: milan, Progress: func(line string) { t.Log(line) }}
	leave := func() {
		t.Helper()
		wait, err := o.leave(t.Context(), rome, "milan", nil)
		require.NoError(t, err)
		require.NoError(t, wait(t.Context()))
	}
	leave()
	namespace, key := &corev1.Namespace{}, client.ObjectKey{Name: "liqo-tenant-milan"}
	require.NoError(t, rome.Client.Get(t.Context(), key, namespace))
	assert.Nil(t, namespace.DeletionTimestamp)

	require.NoError(t, rome.Client.Delete(t.Context(), tenant))
	leave()
	assert.Error(t, rome.Client.Get(t.Context(), key, namespace))
}

// When the command runs twice at the same time, only one run creates an object, and removes it if it fails.
func TestObjectOfAnotherRunIsNotTakenBack(t *testing.T) {
	cluster := testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true})[0]
	rome, other := side(t, cluster), side(t, cluster)
	watching, err := client.NewWithWatch(cluster.Config(), client.Options{Scheme: rome.Client.Scheme()})
	require.NoError(t, err)
	object := func() client.Object {
		return &corev1.Namespace{ObjectMeta: meta("", "liqo-tenant-milan", nil)}
	}
	var once sync.Once
	rome.Client = interceptor.NewClient(watching, interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, applied runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		once.Do(func() { assert.NoError(t, other.apply(ctx, object())) })
		return c.Apply(ctx, applied, options...)
	}})
	require.NoError(t, rome.apply(t.Context(), object()))
	assert.Len(t, other.created, 1)
	assert.Empty(t, rome.created)
}

// An expired invitation that was changed to lead to another server does not get the token of the peering.
func TestTokenIsSentToTheProviderAlone(t *testing.T) {
	rome := side(t, testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true})[0])
	require.NoError(t, rome.makeTenant(t.Context(), &Cluster{installation: &release.Installation{ClusterID: "milan"}}))
	var requests []string
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		requests = append(requests, request.Header.Get("Authorization"))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer elsewhere.Close()
	kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: milan, contexts: [{name: milan, context: {cluster: milan, user: rome}}],
		clusters: [{name: milan, cluster: {server: "https://milan.example", certificate-authority-data: %s}}], users: [{name: rome, user: {token: renewed}}]}`,
		base64.StdEncoding.EncodeToString([]byte("milan")))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("milan"), Name: secretName("milan")}, Data: map[string][]byte{wire.KubeconfigSecretKey: []byte(kubeconfig)}}
	require.NoError(t, rome.Client.Create(t.Context(), secret))
	invited := &Cluster{Name: "milan", invitation: &Invitation{Consumer: "rome", Provider: "milan"}, Config: &rest.Config{Host: elsewhere.URL, BearerToken: "expired",
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: elsewhere.Certificate().Raw})}}}
	o := &Options{Consumer: rome, Provider: invited, Progress: func(line string) { t.Log(line) }}
	assert.Error(t, o.resume(t.Context(), &invitationEndedError{cluster: "milan", consumer: "rome"}))
	assert.Empty(t, requests)
	assert.Same(t, invited, o.Provider)
}
