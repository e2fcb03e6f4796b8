// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/controllers/shadowpod"
)

// awaitNotAdmitted waits until the condition Admitted of a ShadowPod is False.
func awaitNotAdmitted(t *testing.T, shadow *unstructured.Unstructured) {
	t.Helper()
	namespace, name := shadow.GetNamespace(), shadow.GetName()
	controllertest.Eventually(t, "the refusal of "+name, func() error {
		provider.Get(t, shadow, namespace, name)
		if status, message := admitted(shadow); status != "False" {
			return fmt.Errorf("the condition is %q: %s", status, message)
		}
		return nil
	})
}

// TestRefusedPodsFollowTheRulesOfTheirNamespace checks that a refused pod is created, or changed, as soon as its
// namespace allows it. Its next regular attempt would come too late for the test.
func TestRefusedPodsFollowTheRulesOfTheirNamespace(t *testing.T) {
	limited, strict, unowned, running := extended(t), extended(t), provider.Namespace(t), extended(t)
	patch := func(namespace, metadata string) {
		provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, `{"metadata":`+metadata+`}`)
	}
	patch(strict, fmt.Sprintf(`{"labels":{%q:"restricted"}}`, tenancy.EnforceLabel))
	provider.StartManager(t)

	changed := shadowPod(running, "changed")
	provider.Create(t, changed)
	awaitPod(t, changed, "")
	provider.Patch(t, changed, `{"metadata":{"labels":{"istio.io/rev":"canary"}}}`)
	awaitNotAdmitted(t, changed)

	volume := []any{map[string]any{"name": "data", "csi": map[string]any{"driver": "csi.example"}}}
	pods := []*unstructured.Unstructured{
		set(shadowPod(limited, "limited"), volume, "spec", "pod", "volumes"), shadowPod(strict, "strict"), shadowPod(unowned, "unowned"),
	}
	for _, shadow := range pods {
		provider.Create(t, shadow)
		awaitNotAdmitted(t, shadow)
		if podExists(t, shadow.GetNamespace(), shadow.GetName()) {
			t.Errorf("the refused pod %s exists", shadow.GetName())
		}
	}
	patch(limited, `{"annotations":{"tenants.refract.io/volume-types":"csi"}}`)
	patch(strict, fmt.Sprintf(`{"labels":{%q:"baseline"}}`, tenancy.EnforceLabel))
	patch(unowned, fmt.Sprintf(`{"labels":{%q:"consumer"},"annotations":{%q:"liqo-tenant-consumer/provider"}}`,
		wire.RemoteClusterIDLabel, wire.ManagedByNamespaceMapAnnotation))
	patch(running, `{"annotations":{"tenants.refract.io/allowed-labels":"istio.io/*"}}`)
	for _, shadow := range pods {
		awaitPod(t, shadow, "")
	}
	controllertest.Eventually(t, "the label of the running pod", func() error {
		if pod := awaitPod(t, changed, ""); pod.Labels["istio.io/rev"] != "canary" {
			return fmt.Errorf("its labels are %v", pod.Labels)
		}
		return nil
	})
	for _, shadow := range append(pods, changed) {
		controllertest.Eventually(t, "the condition of "+shadow.GetName(), func() error {
			provider.Get(t, shadow, shadow.GetNamespace(), shadow.GetName())
			if status, message := admitted(shadow); status != "True" {
				return fmt.Errorf("it is %q: %s", status, message)
			}
			return nil
		})
	}
}

// TestRefusedPodsAreTriedAgain checks that a refused pod is tried again even if no event announces that its namespace
// allows it.
func TestRefusedPodsAreTriedAgain(t *testing.T) {
	namespace := extended(t)
	policy, err := tenancy.NewPolicy(tenancy.Options{})
	require.NoError(t, err)
	controller := shadowpod.NewController(provider.Client, provider.Client, events.NewFakeRecorder(100),
		shadowpod.Options{Workers: 1, Clock: clock.RealClock{}, Policy: policy})
	shadow := set(shadowPod(namespace, "host"), true, "spec", "pod", "hostPID")
	provider.Create(t, shadow)
	result, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(shadow)})
	require.NoError(t, err)
	awaitNotAdmitted(t, shadow)
	assert.Positive(t, result.RequeueAfter)
}
