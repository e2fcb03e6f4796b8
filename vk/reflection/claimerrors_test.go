// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"testing"

	"github.com/refract-project/refract/vk/reflection/internal/kinds/claim"
)

// What the provider refuses is told on the claim with the field and the remedy, keeps no other claim waiting, and is tried
// again.
func TestClaimsThatTheProviderRefuses(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.remote.create(t, l.remoteNS, `{apiVersion: v1, kind: ResourceQuota, metadata: {name: small}, spec: {hard: {requests.storage: 1Gi}}}`)
	l.present(l.remote, "ResourceQuota", l.remoteNS, "small", field("status.hard/requests.storage", "1Gi"))
	l.start()
	l.claim("bad-class", l.node, `liqo.io/remote-storage-class: Not_A_Class`)
	l.claim("bad-modes", l.node, `liqo.io/remote-access-modes: "ReadWriteSometimes"`)
	l.event(l.namespace, ClaimKind, "bad-class", "Warning", "ProvisioningFailed", "spec.storageClassName", "liqo.io/remote-storage-class")
	l.event(l.namespace, ClaimKind, "bad-modes", "Warning", "PluginFailed", "ReadWriteSometimes", "liqo.io/remote-access-modes")
	l.claim("first", l.node)
	l.bound("first")
	l.claim("second", l.node)
	l.event(l.namespace, ClaimKind, "second", "Warning", "ProvisioningFailed", "exceeded quota", "spec.resources.requests", l.id)
	l.settled()
	for _, name := range []string{"bad-class", "bad-modes", "second"} {
		if claim := l.local.get(t, ClaimKind, l.namespace, name); l.local.get(t, "PersistentVolume", "", "pvc-"+string(claim.GetUID())) != nil {
			t.Errorf("claim %s, which the provider has not taken, has got a volume", name)
		}
	}
	l.remote.patchYAML(t, "ResourceQuota", l.remoteNS, "small", `{spec: {hard: {requests.storage: 9Gi}}}`)
	l.bound("second")
	l.local.patchYAML(t, ClaimKind, l.namespace, "bad-modes", `{metadata: {annotations: {liqo.io/remote-access-modes: "ReadWriteMany, ReadWriteOnce"}}}`)
	l.present(l.remote, ClaimKind, l.remoteNS, "bad-modes", field("spec.accessModes", "[ReadWriteMany ReadWriteOnce]"))
	_, volume := l.bound("bad-modes")
	if err := field("spec.accessModes", "[ReadWriteOnce]")(volume); err != nil {
		t.Error(err)
	}
}

// A claim of that name which is not ours is left alone; when it is gone, ours is made.
func TestForeignClaimIsLeftAlone(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.remote.create(t, l.remoteNS, `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, labels: {whose: theirs}},
  spec: {storageClassName: "", accessModes: [ReadOnlyMany], resources: {requests: {storage: 7Gi}}}}`)
	l.start()
	l.claim("data", l.node)
	l.event(l.namespace, ClaimKind, "data", "Warning", "ProvisioningFailed", "not made by this virtual node", l.remoteNS+"/data")
	l.settled()
	l.present(l.remote, ClaimKind, l.remoteNS, "data", field("metadata.labels/whose", "theirs"), field("metadata.labels/app", ""), field("spec.resources.requests.storage", "7Gi"))
	l.remote.delete(t, ClaimKind, l.remoteNS, "data")
	l.bound("data")
}

// A class that binds at once leaves no provider to choose; one that is gone cannot say how. Both are told, and heal.
func TestVirtualClassMustWait(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.start()
	l.local.delete(t, "StorageClass", "", l.class)
	l.local.create(t, "", fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s}, provisioner: liqo.io/storage, volumeBindingMode: Immediate}`, l.class))
	l.settled()
	l.claim("at-once", "")
	l.event(l.namespace, ClaimKind, "at-once", "Warning", "ProvisioningFailed", "volumeBindingMode", "Immediate", "WaitForFirstConsumer")
	l.local.delete(t, "StorageClass", "", l.class)
	l.settled()
	l.local.patchYAML(t, ClaimKind, l.namespace, "at-once", "{metadata: {annotations: {volume.kubernetes.io/selected-node: "+l.node+"}}}")
	l.event(l.namespace, ClaimKind, "at-once", "Warning", "ProvisioningFailed", "does not exist", l.class)
	l.local.create(t, "", fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s}, provisioner: liqo.io/storage, volumeBindingMode: WaitForFirstConsumer}`, l.class))
	l.bound("at-once")
}

// The provider makes the claims of generic ephemeral volumes itself: here is only the volume that lets the pod be scheduled.
func TestEphemeralVolumesGetNoClaimOfOurs(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	pod := l.local.create(t, l.namespace, `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {automountServiceAccountToken: false, containers: [{name: web, image: "web:1"}]}}`)
	l.local.create(t, l.namespace, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: web-scratch
  annotations: {volume.kubernetes.io/selected-node: %s}
  ownerReferences: [{apiVersion: v1, kind: Pod, name: web, uid: %s, controller: true}]
spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`, l.node, pod.GetUID(), l.class))
	l.start()
	_, volume := l.bound("web-scratch")
	l.settled()
	if writes := l.remote.writes(t); len(writes) > 0 {
		t.Errorf("an ephemeral volume took the writes %q to the provider", writes)
	}
	l.local.delete(t, ClaimKind, l.namespace, "web-scratch")
	l.absent(l.local, "PersistentVolume", "", volume.GetName())
}

// What Liqo has made is taken for what it is.
func TestVolumesOfLiqoAreTakenOver(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	claim := l.claim("data", l.node)
	name := "pvc-" + string(claim.GetUID())
	l.remote.create(t, l.remoteNS, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, labels: {%s}},
  spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, l.owned(), l.disk))
	l.local.create(t, "", fmt.Sprintf(`
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
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: liqo.io/remote-cluster-id, operator: In, values: [%s]}]}]}}`, name, l.class, l.namespace, claim.GetUID(), l.id))
	l.bound("data")
	l.start()
	l.present(l.remote, ClaimKind, l.remoteNS, "data", field("metadata.annotations/"+volumeNote, name), field("metadata.labels/app", "db"))
	l.present(l.local, "PersistentVolume", "", name, field("metadata.labels/offloading.liqo.io/destination", l.id))
	l.settled()
	l.stop()
	l.quiet("a restart", func() { l.start() })
	l.disks("data", "1Gi")
	l.local.delete(t, ClaimKind, l.namespace, "data")
	l.absent(l.remote, ClaimKind, l.remoteNS, "data")
	l.absent(l.local, "PersistentVolume", "", name)
}

// volumeNote, on claims of the provider, names the volume here.
const volumeNote = claim.OriginVolumeAnnotation
