// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/claim"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestClaimsThatTheProviderRefuses checks that a refusal by the provider is reported on the claim with the field and
// the remedy, that other claims are not delayed, and that the write is retried.
func TestClaimsThatTheProviderRefuses(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.Remote.Create(t, l.RemoteNS, `{apiVersion: v1, kind: ResourceQuota, metadata: {name: small}, spec: {hard: {requests.storage: 1Gi}}}`)
	l.Present(l.Remote, "ResourceQuota", l.RemoteNS, "small", reflectiontest.Field("status.hard/requests.storage", "1Gi"))
	l.Start()
	l.claim("bad-class", l.Node, `liqo.io/remote-storage-class: Not_A_Class`)
	l.claim("bad-modes", l.Node, `liqo.io/remote-access-modes: "ReadWriteSometimes"`)
	l.Event(l.Namespace, reflection.ClaimKind, "bad-class", "Warning", "ProvisioningFailed", "spec.storageClassName", "liqo.io/remote-storage-class")
	l.Event(l.Namespace, reflection.ClaimKind, "bad-modes", "Warning", "PluginFailed", "ReadWriteSometimes", "liqo.io/remote-access-modes")
	l.claim("first", l.Node)
	l.bound("first")
	l.claim("second", l.Node)
	l.Event(l.Namespace, reflection.ClaimKind, "second", "Warning", "ProvisioningFailed", "exceeded quota", "spec.resources.requests", l.ID)
	l.Settled()
	for _, name := range []string{"bad-class", "bad-modes", "second"} {
		if claim := l.Local.Get(t, reflection.ClaimKind, l.Namespace, name); l.Local.Get(t, "PersistentVolume", "", "pvc-"+string(claim.GetUID())) != nil {
			t.Errorf("claim %s, which the provider has not taken, has got a volume", name)
		}
	}
	l.Remote.PatchYAML(t, "ResourceQuota", l.RemoteNS, "small", `{spec: {hard: {requests.storage: 9Gi}}}`)
	l.bound("second")
	l.Local.PatchYAML(t, reflection.ClaimKind, l.Namespace, "bad-modes", `{metadata: {annotations: {liqo.io/remote-access-modes: "ReadWriteMany, ReadWriteOnce"}}}`)
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "bad-modes", reflectiontest.Field("spec.accessModes", "[ReadWriteMany ReadWriteOnce]"))
	_, volume := l.bound("bad-modes")
	assert.NoError(t, reflectiontest.Field("spec.accessModes", "[ReadWriteOnce]")(volume))
}

// TestForeignClaimIsLeftAlone checks that another client's claim of the same name is not changed, and that our claim
// is created after the other one was deleted.
func TestForeignClaimIsLeftAlone(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.Remote.Create(t, l.RemoteNS, `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, labels: {whose: theirs}},
  spec: {storageClassName: "", accessModes: [ReadOnlyMany], resources: {requests: {storage: 7Gi}}}}`)
	l.Start()
	l.claim("data", l.Node)
	l.Event(l.Namespace, reflection.ClaimKind, "data", "Warning", "ProvisioningFailed", "is not managed by Refract", l.RemoteNS+"/data")
	l.Settled()
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "data", reflectiontest.Field("metadata.labels/whose", "theirs"), reflectiontest.Field("metadata.labels/app", ""), reflectiontest.Field("spec.resources.requests.storage", "7Gi"))
	l.Remote.Delete(t, reflection.ClaimKind, l.RemoteNS, "data")
	l.bound("data")
}

// TestVirtualClassMustWait checks that a class with immediate binding, which would bind a claim before a provider is
// chosen, and a deleted class are reported on the claims, and that the claims are provisioned after the class was
// corrected.
func TestVirtualClassMustWait(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.Start()
	l.Local.Delete(t, "StorageClass", "", l.class)
	l.Local.Create(t, "", fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s}, provisioner: liqo.io/storage, volumeBindingMode: Immediate}`, l.class))
	l.Settled()
	l.claim("at-once", "")
	l.Event(l.Namespace, reflection.ClaimKind, "at-once", "Warning", "ProvisioningFailed", "volumeBindingMode", "Immediate", "WaitForFirstConsumer")
	l.Local.Delete(t, "StorageClass", "", l.class)
	l.Settled()
	l.Local.PatchYAML(t, reflection.ClaimKind, l.Namespace, "at-once", "{metadata: {annotations: {volume.kubernetes.io/selected-node: "+l.Node+"}}}")
	l.Event(l.Namespace, reflection.ClaimKind, "at-once", "Warning", "ProvisioningFailed", "no longer exists", l.class)
	l.Local.Create(t, "", fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s}, provisioner: liqo.io/storage, volumeBindingMode: WaitForFirstConsumer}`, l.class))
	l.bound("at-once")
}

// TestEphemeralVolumesGetNoClaimOfOurs checks that reflection creates no claims for generic ephemeral volumes on the
// provider, because the provider creates them for its own pod. In this cluster, only the volume exists that makes the
// pod schedulable.
func TestEphemeralVolumesGetNoClaimOfOurs(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	pod := l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {automountServiceAccountToken: false, containers: [{name: web, image: "web:1"}]}}`)
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: web-scratch
  annotations: {volume.kubernetes.io/selected-node: %s}
  ownerReferences: [{apiVersion: v1, kind: Pod, name: web, uid: %s, controller: true}]
spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`, l.Node, pod.GetUID(), l.class))
	l.Start()
	_, volume := l.bound("web-scratch")
	l.Settled()
	if writes := l.Remote.Writes(t); len(writes) > 0 {
		t.Errorf("an ephemeral volume took the writes %q to the provider", writes)
	}
	l.Local.Delete(t, reflection.ClaimKind, l.Namespace, "web-scratch")
	l.Absent(l.Local, "PersistentVolume", "", volume.GetName())
}

// TestVolumesOfLiqoAreTakenOver checks that volumes and claims that Liqo has created are recognized and managed from
// then on.
func TestVolumesOfLiqoAreTakenOver(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	claim := l.claim("data", l.Node)
	name := "pvc-" + string(claim.GetUID())
	l.Remote.Create(t, l.RemoteNS, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, labels: {%s}},
  spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, l.Owned(), l.disk))
	l.Local.Create(t, "", fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s, annotations: {pv.kubernetes.io/provisioned-by: liqo.io/storage}}
spec:
  storageClassName: %s
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  hostPath: {path: /tmp/liqo-placeholder}
  persistentVolumeReclaimPolicy: Delete
  claimRef: {namespace: %s, name: data, uid: %s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/remote-cluster-id, operator: In, values: [%s]}]}]}}`, name, l.class, l.Namespace, claim.GetUID(), l.ID))
	l.bound("data")
	l.Start()
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "data", reflectiontest.Field("metadata.annotations/"+volumeNote, name), reflectiontest.Field("metadata.labels/app", "db"))
	l.Present(l.Local, "PersistentVolume", "", name, reflectiontest.Field("metadata.labels/offloading.liqo.io/destination", l.ID))
	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.disks("data", "1Gi")
	l.Local.Delete(t, reflection.ClaimKind, l.Namespace, "data")
	l.Absent(l.Remote, reflection.ClaimKind, l.RemoteNS, "data")
	l.Absent(l.Local, "PersistentVolume", "", name)
}

// volumeNote is the annotation of a provider's claim with the name of the volume in this cluster.
const volumeNote = claim.OriginVolumeAnnotation
