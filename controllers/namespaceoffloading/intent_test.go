// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

// forged creates a NamespaceMap that looks like a map of this cluster.
func forged(t *testing.T, namespace, name, provider string, desired map[string]string) *offloading.NamespaceMap {
	t.Helper()
	nm := &offloading.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
			wire.ReplicationLabel: "true", wire.RemoteIDLabel: provider, wire.RemoteClusterIDLabel: provider,
		}},
		Spec: offloading.NamespaceMapSpec{DesiredMapping: desired},
	}
	consumer.Create(t, nm)
	t.Cleanup(func() { cleanup(t, nm); release(t, nm) })
	return nm
}

// awaitUnmapped waits until the map has no entry for the namespace.
func awaitUnmapped(t *testing.T, nm *offloading.NamespaceMap, namespace string) {
	t.Helper()
	controllertest.Eventually(t, "the mapping of "+namespace+" to be removed", func() error {
		consumer.Get(t, nm, nm.Namespace, nm.Name)
		if _, mapped := nm.Spec.DesiredMapping[namespace]; mapped {
			return fmt.Errorf("the map has %v", nm.Spec.DesiredMapping)
		}
		return nil
	})
}

// TestAnEntryLetsNobodyIn checks that only a clusterSelector gives a virtual kubelet access to the namespace. The
// NamespaceMap does not matter. A virtual kubelet with access keeps it while the selection is uncertain.
func TestAnEntryLetsNobodyIn(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, letsIn, graceOf(time.Hour))
	here := virtualNode(t, tenant, "node-massa", "massa", map[string]string{"zone": "north"}).Namespace
	virtualNode(t, tenant, "node-nuoro", "nuoro", map[string]string{"zone": "south"})
	unregistered := virtualNode(t, tenant, "node-ostia", "ostia", nil).Namespace
	for provider, tenant := range map[string]string{"massa": here, "ostia": unregistered} {
		nm := forged(t, tenant, provider, provider, map[string]string{namespace: namespace + "-stolen"})
		answer(t, nm, namespace, offloading.MappingAccepted)
	}
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{ClusterSelector: in("zone", "south")})
	awaitMapped(t, tenant, "nuoro", namespace, namespace+"-consumer")
	awaitRequired(t, nso, "massa", corev1.ConditionFalse, "is deleted, with everything in it, at ")
	awaitLetIn(t, namespace, "node-nuoro")

	// A second node of the withdrawn provider gets no access, because it had no access before.
	consumer.Patch(t, nso, `{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["west"]}]}]}}}`)
	awaitRequired(t, nso, "nuoro", corev1.ConditionFalse, "is deleted")
	virtualNode(t, tenants["nuoro"], "node-nuoro-2", "nuoro", map[string]string{"zone": "east"})
	looked(t, tenant, "nuoro", offloading.NamespaceOffloadingSpec{ClusterSelector: in("zone", "east")})
	awaitLetIn(t, namespace, "node-nuoro")
}

// TestAnEntryWithoutANamespaceOffloadingIsRemoved checks that an entry without a NamespaceOffloading is removed after a
// while, even if the namespace does not exist. An Event announces this.
func TestAnEntryWithoutANamespaceOffloadingIsRemoved(t *testing.T) {
	tenant, namespace, kept := consumer.Namespace(t), consumer.Namespace(t), consumer.Namespace(t)
	here := virtualNode(t, tenant, "node-pesaro", "pesaro", map[string]string{}).Namespace
	offload(t, kept, offloading.NamespaceOffloadingSpec{})
	nm := forged(t, here, "pesaro", "pesaro", map[string]string{namespace: "stolen", "never-was": "ghost", "kube-system": "system", kept: kept + "-consumer"})
	m := consumer.StartManager(t, letsIn, graceOf(time.Hour))
	event := consumer.AwaitEvent(t, here, "NamespaceMap", "pesaro", "NamespaceNotOffloaded")
	assert.Contains(t, event.Note, "To keep it, offload the namespace to pesaro again")
	looked(t, tenant, "pesaro", offloading.NamespaceOffloadingSpec{})
	awaitMapped(t, tenant, "pesaro", namespace, "stolen")
	m.Stop(t)

	m = consumer.StartManager(t, letsIn, graceOf(2*time.Second))
	for _, dropped := range []string{namespace, "never-was", "kube-system"} {
		awaitUnmapped(t, nm, dropped)
	}
	consumer.AwaitEvent(t, here, "NamespaceMap", "pesaro", "MappingRemoved")
	awaitMapped(t, tenant, "pesaro", kept, kept+"-consumer")
	// A peer that may write the map adds the withdrawn entry again.
	consumer.Patch(t, nm, fmt.Sprintf(`{"spec":{"desiredMapping":{%q:"again"}}}`, namespace))
	awaitUnmapped(t, nm, namespace)
	assert.Empty(t, m.Writes.About(namespace, "rolebindings"))
}

// TestAConsumerIsNoProvider checks that a NamespaceMap that a consumer of this cluster has created does not count as
// the map of a provider, and does not affect offloading.
func TestAConsumerIsNoProvider(t *testing.T) {
	tenant, namespace, mallory := consumer.Namespace(t), consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, letsIn, graceOf(time.Hour))
	here := virtualNode(t, tenant, "node-rieti", "rieti", map[string]string{}).Namespace
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{})
	nm := awaitMapped(t, tenant, "rieti", namespace, namespace+"-consumer")
	answer(t, nm, namespace, offloading.MappingAccepted)
	awaitOffloadingPhase(t, nso, offloading.ReadyOffloadingPhaseType)

	tenantOf(t, mallory, "mallory")
	forged(t, mallory, "mallory", "mallory", map[string]string{namespace: "x"})
	// The other cluster, which is both a provider and a consumer, creates this map.
	forged(t, here, "a-second", "rieti", map[string]string{namespace: "x"})
	consumer.Patch(t, nso, `{"metadata":{"annotations":{"touched":"true"}}}`)
	looked(t, tenant, "rieti", offloading.NamespaceOffloadingSpec{})
	awaitOffloadingPhase(t, nso, offloading.ReadyOffloadingPhaseType)
	assert.NotContains(t, nso.Status.RemoteNamespacesConditions, "mallory")
	consumer.Delete(t, nso)
	answer(t, awaitMapped(t, tenant, "rieti", namespace, ""), namespace, "")
	consumer.AwaitGone(t, nso)
}
