// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

// TestRequestsOfATenantAreCounted checks that the number of a consumer's ResourceSlices and Renews is limited, because
// the process that serves all consumers reads all of them.
func TestRequestsOfATenantAreCounted(t *testing.T) {
	start(t, func(o *controllers.Options) {
		o.RecountDelay = 3 * time.Second
		o.ObjectCounts = corev1.ResourceList{
			"count/resourceslices.authentication.liqo.io": resource.MustParse("2"), "count/renews.authentication.liqo.io": resource.MustParse("2"), "count/secrets": resource.MustParse("7"),
		}
	})
	crowd := newConsumer(t, "crowd")
	controlPlane := crowd.with(crowd.join().Status.AuthParams)
	for kind, object := range map[string]client.Object{
		"resourceslices": crowd.slice("", cpu("1")),
		"renews":         &auth.Renew{Spec: auth.RenewSpec{ConsumerClusterID: core.ClusterID("crowd")}},
	} {
		object.SetNamespace(crowd.namespace)
		object.SetLabels(map[string]string{wire.ReplicatedLabel: "true", wire.OriginIDLabel: "crowd"})
		controllertest.Eventually(t, "further "+kind+" to be refused", func() error {
			quota := &corev1.ResourceQuota{}
			if err := provider.Client.Get(t.Context(), types.NamespacedName{Namespace: crowd.namespace, Name: wire.ObjectCountsQuota}, quota); err != nil {
				return err
			}
			assert.NotContains(t, quota.Spec.Hard, corev1.ResourceName("count/secrets"))
			object := object.DeepCopyObject().(client.Object)
			object.SetName("")
			object.SetGenerateName("many-")
			err := controlPlane.Create(t.Context(), object)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: "+wire.ObjectCountsQuota) {
				return fmt.Errorf("the error is %w", err)
			}
			return nil
		})
	}
	provider.Delete(t, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: crowd.namespace, Name: wire.ObjectCountsQuota}})
	controllertest.Eventually(t, "the limits to be back", func() error {
		return provider.Client.Get(t.Context(), types.NamespacedName{Namespace: crowd.namespace, Name: wire.ObjectCountsQuota}, &corev1.ResourceQuota{})
	})
}
