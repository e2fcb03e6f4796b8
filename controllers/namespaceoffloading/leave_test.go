// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

func graceOf(grace time.Duration) func(*controllers.Options) {
	return func(o *controllers.Options) { o.WithdrawalGrace = grace }
}

// awaitRequired waits for the condition that shows whether a remote namespace is required.
func awaitRequired(t *testing.T, nso *offloading.NamespaceOffloading, provider string, want corev1.ConditionStatus, words string) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("the condition about %s", provider), func() error {
		consumer.Get(t, nso, nso.Namespace, nso.Name)
		for _, condition := range nso.Status.RemoteNamespacesConditions[provider] {
			if condition.Type == offloading.NamespaceOffloadingRequired && condition.Status == want && strings.Contains(condition.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("status is %+v", nso.Status)
	})
}

// looked waits until the controller has processed all earlier changes.
func looked(t *testing.T, tenant, provider string, spec offloading.NamespaceOffloadingSpec) {
	t.Helper()
	marker := consumer.Namespace(t)
	offload(t, marker, spec)
	awaitMapped(t, tenant, provider, marker, marker+"-consumer")
}

// TestANodeWithoutItsLabels checks that the removal of a label from a Node does not cause a deletion as long as the
// VirtualNode has the label.
func TestANodeWithoutItsLabels(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, letsIn) // with letsIn, there is no grace period
	vn := virtualNode(t, tenant, "node-aosta", "aosta", map[string]string{"zone": "north"})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{ClusterSelector: in("zone", "north")})
	awaitMapped(t, tenant, "aosta", namespace, namespace+"-consumer")

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-aosta"}}
	consumer.Patch(t, node, `{"metadata":{"labels":{"zone":null}}}`)
	looked(t, tenant, "aosta", offloading.NamespaceOffloadingSpec{})
	awaitMapped(t, tenant, "aosta", namespace, namespace+"-consumer")
	awaitRequired(t, nso, "aosta", corev1.ConditionTrue, "")
	awaitLetIn(t, namespace, "node-aosta")

	// The selection is certain, because the Node and the VirtualNode have the same labels.
	consumer.Patch(t, vn, `{"spec":{"labels":{"zone":"south"}}}`)
	awaitMapped(t, tenant, "aosta", namespace, "")
}

// TestWithdrawalTakesItsTime checks that, if a selector no longer matches, the namespace is withdrawn after a grace
// period. The withdrawal is announced.
func TestWithdrawalTakesItsTime(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	m := consumer.StartManager(t, letsIn, graceOf(time.Hour))
	virtualNode(t, tenant, "node-lecce", "lecce", map[string]string{"zone": "south"})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{ClusterSelector: in("zone", "south")})
	awaitMapped(t, tenant, "lecce", namespace, namespace+"-consumer")
	awaitRequired(t, nso, "lecce", corev1.ConditionTrue, "matches a virtual node")
	selects := func(zone string) {
		consumer.Patch(t, nso, fmt.Sprintf(`{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":[%q]}]}]}}}`, zone))
	}
	selects("nouth")
	awaitRequired(t, nso, "lecce", corev1.ConditionFalse, "is deleted, with everything in it, at ")
	awaitMapped(t, tenant, "lecce", namespace, namespace+"-consumer")
	awaitLetIn(t, namespace, "node-lecce")
	selects("south")
	awaitRequired(t, nso, "lecce", corev1.ConditionTrue, "matches a virtual node")

	// The grace period begins at the time in the condition, even after a restart.
	selects("nouth")
	awaitRequired(t, nso, "lecce", corev1.ConditionFalse, "is deleted")
	m.Stop(t)
	consumer.StartManager(t, letsIn, graceOf(2*time.Second))
	awaitMapped(t, tenant, "lecce", namespace, "")
	awaitRequired(t, nso, "lecce", corev1.ConditionFalse, "matches no virtual node of cluster lecce")
}
