// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/remotedata"
)

const (
	retainPolicy = corev1.PersistentVolumeReclaimRetain
	deletePolicy = corev1.PersistentVolumeReclaimDelete
)

// awaitHeld waits until the condition lists the volume that keeps the remote namespace.
func awaitHeld(t *testing.T, nso *offloading.NamespaceOffloading, provider, volume string) {
	t.Helper()
	controllertest.Eventually(t, "the condition that names "+volume, func() error {
		consumer.Get(t, nso, nso.Namespace, nso.Name)
		for _, condition := range nso.Status.RemoteNamespacesConditions[provider] {
			if condition.Type == offloading.NamespaceOffloadingRequired && condition.Reason == remotedata.HeldReason && strings.Contains(condition.Message, volume) {
				return nil
			}
		}
		return fmt.Errorf("status is %+v", nso.Status)
	})
}

// TestDeletionIsHeldByData checks that a deleted NamespaceOffloading remains while a volume has data, until the
// deletion of the data is confirmed. The namespace is withdrawn from other providers at once.
func TestDeletionIsHeldByData(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, letsIn, graceOf(time.Hour))
	virtualNode(t, tenant, "node-rovigo", "rovigo", map[string]string{})
	virtualNode(t, tenant, "node-belluno", "belluno", map[string]string{})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{})
	answer(t, awaitMapped(t, tenant, "rovigo", namespace, namespace+"-consumer"), namespace, offloading.MappingAccepted)
	awaitMapped(t, tenant, "belluno", namespace, namespace+"-consumer")
	_, volume := consumer.BoundClaim(t, "rovigo", namespace, deletePolicy)
	consumer.BoundClaim(t, "rovigo", consumer.Namespace(t), deletePolicy) // a claim in another namespace does not count
	awaitLetIn(t, namespace, "node-belluno", "node-rovigo")

	consumer.Delete(t, nso)
	awaitHeld(t, nso, "rovigo", volume.Name+" of claim "+namespace+"/data")
	assert.Contains(t, consumer.AwaitEvent(t, namespace, offloading.NamespaceOffloadingKind, nso.Name, remotedata.HeldReason).Note, wire.DeleteDataAnnotation+"=true")
	awaitMapped(t, tenant, "belluno", namespace, "")
	awaitMapped(t, tenant, "rovigo", namespace, namespace+"-consumer")
	awaitLetIn(t, namespace, "node-belluno", "node-rovigo")
	assert.Equal(t, offloading.TerminatingOffloadingPhaseType, nso.Status.OffloadingPhase)

	consumer.Patch(t, nso, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, wire.DeleteDataAnnotation))
	answer(t, awaitMapped(t, tenant, "rovigo", namespace, ""), namespace, "")
	consumer.AwaitGone(t, nso)
}

// TestDeletionIsHeldByRetainedVolumes checks that a retained volume prevents the deletion even if the deletion of data
// is confirmed. A volume with the policy Delete that has lost its claim does not prevent it.
func TestDeletionIsHeldByRetainedVolumes(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, letsIn, graceOf(time.Hour))
	virtualNode(t, tenant, "node-verbania", "verbania", map[string]string{})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{})
	awaitMapped(t, tenant, "verbania", namespace, namespace+"-consumer")
	claim, volume := consumer.BoundClaim(t, "verbania", namespace, retainPolicy)
	consumer.Patch(t, nso, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, wire.DeleteDataAnnotation))
	consumer.Delete(t, nso)
	awaitHeld(t, nso, "verbania", volume.Name)
	consumer.ReleaseVolume(t, claim, volume)
	consumer.Patch(t, nso, `{"metadata":{"annotations":{"plugins.refract.io/delete-data":null,"touched":"true"}}}`)
	looked(t, tenant, "verbania", offloading.NamespaceOffloadingSpec{})
	awaitHeld(t, nso, "verbania", "(Retain)")
	awaitMapped(t, tenant, "verbania", namespace, namespace+"-consumer")

	consumer.Patch(t, volume, `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
	awaitMapped(t, tenant, "verbania", namespace, "")
}

// TestWithdrawalIsHeldByData checks that a namespace with data is not withdrawn if its clusterSelector no longer
// matches, no matter how long this has been so. The virtual kubelet keeps its access.
func TestWithdrawalIsHeldByData(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, letsIn) // with letsIn, there is no grace period
	virtualNode(t, tenant, "node-vasto", "vasto", map[string]string{"zone": "south"})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{ClusterSelector: in("zone", "south")})
	awaitMapped(t, tenant, "vasto", namespace, namespace+"-consumer")
	_, volume := consumer.BoundClaim(t, "vasto", namespace, deletePolicy)

	consumer.Patch(t, nso, `{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["nouth"]}]}]}}}`)
	awaitHeld(t, nso, "vasto", volume.Name)
	consumer.AwaitEvent(t, namespace, offloading.NamespaceOffloadingKind, nso.Name, remotedata.HeldReason)
	awaitMapped(t, tenant, "vasto", namespace, namespace+"-consumer")
	awaitLetIn(t, namespace, "node-vasto")
	consumer.Patch(t, nso, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, wire.DeleteDataAnnotation))
	awaitMapped(t, tenant, "vasto", namespace, "")
}

// TestAnUnbackedEntryIsHeldByData checks that an entry without a NamespaceOffloading is kept while a volume has data,
// and is removed with the volume.
func TestAnUnbackedEntryIsHeldByData(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	here := virtualNode(t, tenant, "node-viterbo", "viterbo", map[string]string{}).Namespace
	_, volume := consumer.BoundClaim(t, "viterbo", namespace, retainPolicy)
	nm := forged(t, here, "viterbo", "viterbo", map[string]string{namespace: namespace + "-consumer"})
	consumer.StartManager(t, letsIn) // with letsIn, there is no grace period
	assert.Contains(t, consumer.AwaitEvent(t, here, "NamespaceMap", "viterbo", remotedata.HeldReason).Note, volume.Name)
	awaitMapped(t, tenant, "viterbo", namespace, namespace+"-consumer")
	consumer.Release(t, volume)
	awaitUnmapped(t, nm, namespace)
}

// TestADeletedNamespaceDoesNotWaitForRetainedVolumes checks that the deletion of a namespace does not wait for retained
// volumes. The mapping is kept together with the data. Data is deleted with its claims if their policy is Delete.
func TestADeletedNamespaceDoesNotWaitForRetainedVolumes(t *testing.T) {
	tenant, kept, dropped := consumer.Namespace(t), consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, letsIn) // with letsIn, there is no grace period
	here := virtualNode(t, tenant, "node-zara", "zara", map[string]string{}).Namespace
	volumes := map[string]*corev1.PersistentVolume{}
	for namespace, policy := range map[string]corev1.PersistentVolumeReclaimPolicy{kept: retainPolicy, dropped: deletePolicy} {
		offload(t, namespace, offloading.NamespaceOffloadingSpec{})
		answer(t, awaitMapped(t, tenant, "zara", namespace, namespace+"-consumer"), namespace, offloading.MappingAccepted)
		_, volumes[namespace] = consumer.BoundClaim(t, "zara", namespace, policy)
		consumer.Delete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	answer(t, awaitMapped(t, tenant, "zara", dropped, ""), dropped, "")
	for _, namespace := range []string{kept, dropped} {
		consumer.AwaitGone(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	assert.Contains(t, consumer.AwaitEvent(t, here, "NamespaceMap", "zara", remotedata.HeldReason).Note, volumes[kept].Name)
	nm := awaitMapped(t, tenant, "zara", kept, kept+"-consumer")
	consumer.Release(t, volumes[kept])
	awaitUnmapped(t, nm, kept)
}

// TestDataOfADeadProviderHoldsNothing checks that data on a provider that is declared dead does not prevent the
// deletion, because such a provider cannot delete data.
func TestDataOfADeadProviderHoldsNothing(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, letsIn)
	virtualNode(t, tenant, "node-zante", "zante", map[string]string{})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{})
	answer(t, awaitMapped(t, tenant, "zante", namespace, namespace+"-consumer"), namespace, offloading.MappingAccepted)
	_, volume := consumer.BoundClaim(t, "zante", namespace, deletePolicy)
	consumer.Delete(t, nso)
	awaitHeld(t, nso, "zante", volume.Name)
	declareDead(t, "zante")
	consumer.AwaitGone(t, nso)
}
