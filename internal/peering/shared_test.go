// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/internal/release"
	"github.com/refract-project/refract/internal/testenv"
)

// A peer that has a Tenant here, as consumers that run Liqo do, keeps its tenant namespace when it is no provider any more.
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
