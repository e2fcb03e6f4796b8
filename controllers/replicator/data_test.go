// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package replicator_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/remotedata"
)

// edited replaces an entry in a map, as a user might do by hand.
func edited(t *testing.T, local *offloading.NamespaceMap, namespace, remoteNamespace string) {
	t.Helper()
	value := fmt.Sprintf("%q", remoteNamespace)
	if remoteNamespace == "" {
		value = "null"
	}
	consumer.Patch(t, local, fmt.Sprintf(`{"spec":{"desiredMapping":{%q:%s}}}`, namespace, value))
}

// requested replicates a map with two namespaces, of which only the first has data. It returns the map and its copy.
func requested(t *testing.T, here, there, id, withData, without string) (local, copied *offloading.NamespaceMap, volume *corev1.PersistentVolume) {
	t.Helper()
	_, volume = consumer.BoundClaim(t, id, withData, corev1.PersistentVolumeReclaimDelete)
	desired := map[string]string{withData: withData + "-home", without: without + "-home"}
	local = outgoing(here, id, desired)
	consumer.Create(t, local)
	return local, awaitDesired(t, &provider, there, id, desired), volume
}

// TestAnEditedMapLosesNoData checks that if a user removes or changes an entry with data in a NamespaceMap, the entry
// is kept on the provider until the deletion is confirmed.
func TestAnEditedMapLosesNoData(t *testing.T) {
	here, there := peer(t, "fermo")
	withData, without := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t)
	local, _, volume := requested(t, here, there, "fermo", withData, without)
	consumer.Patch(t, local, `{"metadata":{"labels":{"test":"edited"}}}`)

	edited(t, local, withData, "")
	edited(t, local, without, "")
	awaitDesired(t, &provider, there, "fermo", map[string]string{withData: withData + "-home"})
	event := consumer.AwaitEvent(t, here, offloading.NamespaceMapKind, "fermo", remotedata.HeldReason)
	assert.Contains(t, event.Note, volume.Name)
	assert.Contains(t, event.Note, withData+"-home of provider fermo")

	edited(t, local, withData, "another")
	edited(t, local, without, without+"-home")
	awaitDesired(t, &provider, there, "fermo", map[string]string{withData: withData + "-home", without: without + "-home"})
	consumer.Patch(t, local, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, wire.DeleteDataAnnotation))
	awaitDesired(t, &provider, there, "fermo", map[string]string{withData: "another", without: without + "-home"})
}

// TestADeletedMapLosesNoData checks that if a NamespaceMap is deleted, the entries with data are kept in its copy, and
// that the next map takes over this copy. If no entry has data, the copy must be deleted.
func TestADeletedMapLosesNoData(t *testing.T) {
	here, there := peer(t, "forli")
	withData, without := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t)
	local, copied, volume := requested(t, here, there, "forli", withData, without)
	provider.PatchStatus(t, copied, fmt.Sprintf(`{"status":{"currentMapping":{%q:{"remoteNamespace":%q,"phase":"Accepted"},%q:{"remoteNamespace":%q,"phase":"Accepted"}}}}`,
		withData, withData+"-home", without, without+"-home"))

	consumer.Delete(t, local)
	kept := map[string]string{withData: withData + "-home"}
	awaitDesired(t, &provider, there, "forli", kept)
	if consumer.Get(t, local, here, "forli"); local.DeletionTimestamp == nil {
		t.Error("the map does not wait for the other namespace to be deleted")
	}
	assert.Contains(t, consumer.AwaitEvent(t, here, offloading.NamespaceMapKind, "forli", remotedata.HeldReason).Note, volume.Name)
	provider.PatchStatus(t, copied, fmt.Sprintf(`{"status":{"currentMapping":{%q:null}}}`, without))
	consumer.AwaitGone(t, local)
	if provider.Get(t, copied, there, "forli"); copied.DeletionTimestamp != nil {
		t.Error("the copy is deleted though a namespace in it has data")
	}

	next := outgoing(here, "forli", kept)
	consumer.Create(t, next)
	controllertest.Eventually(t, "the new map to have the answer", func() error {
		if consumer.Get(t, next, here, "forli"); next.Status.CurrentMapping[withData].Phase != offloading.MappingAccepted {
			return fmt.Errorf("status is %+v", next.Status)
		}
		return nil
	})
	consumer.Release(t, volume)
	consumer.Delete(t, next)
	provider.AwaitGone(t, copied)
	consumer.AwaitGone(t, next)
}

// claimThere creates a remote namespace on the provider that contains a bound claim with the given labels. The consumer
// has access to the namespace.
func claimThere(t *testing.T, namespace string, labels map[string]string) {
	t.Helper()
	provider.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	require.NoError(t, provider.Grant(t.Context(), rbac.Peer("", consumer.ID).RemoteNamespace(namespace)))
	claim, _ := provider.BoundClaim(t, "elsewhere", namespace, corev1.PersistentVolumeReclaimDelete)
	before := claim.DeepCopy()
	claim.Labels = labels
	require.NoError(t, provider.Client.Patch(t.Context(), claim, client.MergeFrom(before)))
}

// TestClaimsThatWereCreatedThereHoldTheirNamespace checks that an entry is kept until the deletion is confirmed if
// another client has created claims in the remote namespace. Claims that were reflected from this cluster must not hold
// the namespace. If the namespace of this cluster is deleted, no claims may hold it.
func TestClaimsThatWereCreatedThereHoldTheirNamespace(t *testing.T) {
	here, there := peer(t, "fano")
	theirs, reflected, deleted := consumer.Namespace(t), consumer.Namespace(t), consumer.Namespace(t)
	claimThere(t, theirs+"-home", nil)
	claimThere(t, reflected+"-home", wire.ReflectionLabels(consumer.ID, "fano"))
	claimThere(t, deleted+"-home", nil)
	nso := &offloading.NamespaceOffloading{}
	nso.Namespace, nso.Name = theirs, offloading.NamespaceOffloadingName
	consumer.Create(t, nso)
	t.Cleanup(func() { consumer.Release(t, nso) })
	consumer.StartManager(t)
	desired := map[string]string{theirs: theirs + "-home", reflected: reflected + "-home", deleted: deleted + "-home"}
	local := outgoing(here, "fano", desired)
	consumer.Create(t, local)
	awaitDesired(t, &provider, there, "fano", desired)

	consumer.Delete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: deleted}})
	consumer.Patch(t, local, `{"spec":{"desiredMapping":null}}`)
	awaitDesired(t, &provider, there, "fano", map[string]string{theirs: theirs + "-home"})
	assert.Contains(t, consumer.AwaitEvent(t, here, offloading.NamespaceMapKind, "fano", remotedata.HeldReason).Note, "claims that were created there: "+theirs+"-home/data")
	assert.Contains(t, consumer.AwaitEvent(t, theirs, offloading.NamespaceOffloadingKind, nso.Name, remotedata.HeldReason).Note, wire.DeleteDataAnnotation+"=true")

	consumer.Delete(t, local)
	controllertest.Eventually(t, "the map to be deleted", func() error {
		if consumer.Get(t, local, here, "fano"); local.DeletionTimestamp == nil {
			return errors.New("it is not being deleted")
		}
		return nil
	})
	copied := awaitDesired(t, &provider, there, "fano", map[string]string{theirs: theirs + "-home"})
	consumer.Patch(t, local, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, wire.DeleteDataAnnotation))
	provider.AwaitGone(t, copied)
	consumer.AwaitGone(t, local)
}

// TestAConfirmedDeletionIsReplicated checks that a confirmation on a NamespaceOffloading applies only to its own
// namespace.
func TestAConfirmedDeletionIsReplicated(t *testing.T) {
	here, there := peer(t, "foggia")
	withData, without := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t)
	local, _, _ := requested(t, here, there, "foggia", withData, without)
	nso := &offloading.NamespaceOffloading{}
	nso.Namespace, nso.Name, nso.Annotations = withData, offloading.NamespaceOffloadingName, map[string]string{wire.DeleteDataAnnotation: "true"}
	consumer.Create(t, nso)
	t.Cleanup(func() { consumer.Release(t, nso) })
	edited(t, local, withData, "")
	awaitDesired(t, &provider, there, "foggia", map[string]string{without: without + "-home"})
}
