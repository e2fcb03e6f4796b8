// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resourcerequest_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

var consumer = controllertest.Cluster{ID: "rome", Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &consumer)) }

const tenant = "liqo-tenant-milan"

// slice returns a ResourceSlice as liqoctl create resourceslice creates it.
func slice(name string, labels map[string]string, csr string) *auth.ResourceSlice {
	return &auth.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: labels},
		Spec:       auth.ResourceSliceSpec{ProviderClusterID: ptr.To(core.ClusterID("milan")), Class: auth.DefaultResourceSliceClass, CSR: []byte(csr)},
	}
}

// TestResourceSlicesThatNobodySends checks that a ResourceSlice that no controller sends is denied. Its conditions and
// an Event must contain the command to run. ResourceSlices with a certificate request, without the replication label,
// or from other clusters must be left unchanged.
func TestResourceSlicesThatNobodySends(t *testing.T) {
	require.NoError(t, consumer.Grant(t.Context(), rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}.ResourceRequests()...))
	consumer.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "milan"}}})
	sent := map[string]string{wire.ReplicationLabel: "true", wire.RemoteIDLabel: "milan"}
	consumer.Create(t, slice("of-liqo", sent, "request"))
	consumer.Create(t, slice("of-nobody", nil, ""))
	consumer.Create(t, slice("of-another", map[string]string{wire.ReplicationLabel: "true", wire.ReplicatedLabel: "true", wire.OriginIDLabel: "milan"}, ""))
	consumer.Create(t, slice("more", sent, ""))
	manager := consumer.StartManager(t, func(o *controllers.Options) { o.ResourceRequests.Enabled = true })

	got := &auth.ResourceSlice{}
	controllertest.Eventually(t, "ResourceSlice more to be denied", func() error {
		if err := consumer.Client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "more"}, got); err != nil {
			return err
		}
		for _, what := range []auth.ResourceSliceConditionType{auth.AuthenticationCondition, auth.ResourcesCondition} {
			if got.Status.Decision(what) != auth.ResourceSliceDenied {
				return fmt.Errorf("its status is %+v", got.Status)
			}
		}
		return nil
	})
	assert.Contains(t, got.Status.Condition(auth.ResourcesCondition).Message, "run refractctl create virtualnode more --provider=milan")
	consumer.AwaitEvent(t, tenant, auth.ResourceSliceKind, "more", "NotSent")
	for _, name := range []string{"of-liqo", "of-nobody", "of-another"} { // these slices are older than claimDelay, too
		other := &auth.ResourceSlice{}
		consumer.Get(t, other, tenant, name)
		assert.Empty(t, other.Status.Conditions, name)
	}

	// Liqo finally sends the slice, so the denial is removed.
	consumer.Patch(t, got, `{"spec":{"csr":"cmVxdWVzdA=="}}`)
	controllertest.Eventually(t, "the denial to be withdrawn", func() error {
		if err := consumer.Client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "more"}, got); err != nil || len(got.Status.Conditions) == 0 {
			return err
		}
		return fmt.Errorf("its status is %+v", got.Status)
	})
	assert.Empty(t, manager.Writes.Denied(), "the admission policies allow what the controller writes")
}
