// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"testing"
)

// The policy Delete: with the claim go the provider's and the volume, be it deleted while the kubelet runs or not; a claim
// of the same name that comes at once gets a volume of its own.
func TestDeletedClaimsGoWithTheirVolumes(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.start()
	for _, name := range []string{"now", "down", "again"} {
		l.claim(name, l.node)
		l.bound(name)
		l.disks(name, "1Gi")
	}
	_, now := l.bound("now")
	_, down := l.bound("down")
	_, again := l.bound("again")
	first := l.remote.get(t, ClaimKind, l.remoteNS, "again")
	l.local.delete(t, ClaimKind, l.namespace, "now")
	l.absent(l.remote, ClaimKind, l.remoteNS, "now")
	l.absent(l.local, "PersistentVolume", "", now.GetName())

	l.local.delete(t, ClaimKind, l.namespace, "again")
	l.absent(l.local, ClaimKind, l.namespace, "again")
	l.claim("again", l.node)
	_, next := l.bound("again")
	if second := l.present(l.remote, ClaimKind, l.remoteNS, "again"); second.GetUID() == first.GetUID() || next.GetName() == again.GetName() {
		t.Error("a new claim got the data of the former one")
	}
	l.absent(l.local, "PersistentVolume", "", again.GetName())
	l.settled()
	if events := l.events(l.namespace, ClaimKind, "again"); len(events) > 0 {
		t.Errorf("a claim that had to wait for a moment has the Events %q", events)
	}

	l.stop()
	l.local.delete(t, ClaimKind, l.namespace, "down")
	l.present(l.local, "PersistentVolume", "", down.GetName(), field("status.phase", "Released"))
	l.start()
	l.absent(l.remote, ClaimKind, l.remoteNS, "down")
	l.absent(l.local, "PersistentVolume", "", down.GetName())
	l.bound("again")
}

// Claim and volume deleted together: the provider's claim does not stay behind.
func TestVolumeDeletedWithItsClaim(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.start()
	l.claim("data", l.node)
	_, volume := l.bound("data")
	l.disks("data", "1Gi")
	l.local.delete(t, "PersistentVolume", "", volume.GetName())
	l.settled()
	if there := l.remote.get(t, ClaimKind, l.remoteNS, "data"); there == nil || there.GetDeletionTimestamp() != nil {
		t.Error("the data was deleted while its claim was there")
	}
	l.local.delete(t, ClaimKind, l.namespace, "data")
	l.absent(l.local, "PersistentVolume", "", volume.GetName())
	l.absent(l.remote, ClaimKind, l.remoteNS, "data")
}

// While the provider is away volumes wait for it, and those that somebody deletes meanwhile are not forgotten. Not parallel: the
// provider belongs to all.
func TestVolumesDeletedDuringAnOutage(t *testing.T) {
	l := newClaimLab(t, "Delete")
	l.start()
	for _, name := range []string{"claim", "both"} {
		l.claim(name, l.node)
		l.bound(name)
		l.disks(name, "1Gi")
	}
	_, first := l.bound("claim")
	_, second := l.bound("both")
	l.settled()
	if err := l.remote.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	l.local.delete(t, ClaimKind, l.namespace, "claim")
	l.local.delete(t, ClaimKind, l.namespace, "both")
	l.present(l.local, "PersistentVolume", "", second.GetName(), field("status.phase", "Released"))
	l.local.delete(t, "PersistentVolume", "", second.GetName())
	l.absent(l.local, "PersistentVolume", "", second.GetName())
	l.settled()
	l.present(l.local, "PersistentVolume", "", first.GetName(), field("status.phase", "Released"))
	if err := l.remote.cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"claim", "both"} {
		l.absent(l.remote, ClaimKind, l.remoteNS, name)
	}
	l.absent(l.local, "PersistentVolume", "", first.GetName())
}

// The policy Retain: nothing is lost. A claim of the same name is told, and gets the data when it asks for the volume; what
// is kept goes when the policy says so.
func TestRetainedVolumesStay(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Retain")
	l.start()
	for _, name := range []string{"keep", "reuse"} {
		l.claim(name, l.node)
		l.bound(name)
		l.disks(name, "1Gi")
	}
	_, kept := l.bound("keep")
	_, reused := l.bound("reuse")
	data := l.remote.get(t, ClaimKind, l.remoteNS, "reuse")
	l.settled()
	l.quiet("the deletion of claims whose volumes are retained", func() {
		for _, name := range []string{"keep", "reuse"} {
			l.local.delete(t, ClaimKind, l.namespace, name)
			l.absent(l.local, ClaimKind, l.namespace, name)
		}
		l.present(l.local, "PersistentVolume", "", kept.GetName(), field("status.phase", "Released"))
	})
	l.claim("unused", l.node) // the provider has no volume for it yet, but a pod may be about to need one
	_, unused := l.bound("unused")
	l.local.delete(t, ClaimKind, l.namespace, "unused")
	l.present(l.local, "PersistentVolume", "", unused.GetName(), field("status.phase", "Released"))
	l.settled()
	l.present(l.remote, ClaimKind, l.remoteNS, "unused")
	l.stop()
	l.quiet("a restart", func() { l.start() })

	l.claim("keep", l.node)
	l.event(l.namespace, ClaimKind, "keep", "Warning", "ProvisioningFailed", kept.GetName(), "spec.volumeName", "persistentVolumeReclaimPolicy")
	l.local.patchYAML(t, "PersistentVolume", "", kept.GetName(), `{spec: {persistentVolumeReclaimPolicy: Delete}}`)
	l.absent(l.local, "PersistentVolume", "", kept.GetName())
	l.bound("keep")

	l.local.patchYAML(t, "PersistentVolume", "", reused.GetName(), `{spec: {claimRef: {uid: null, resourceVersion: null}}}`)
	l.local.create(t, l.namespace, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: reuse, labels: {app: second}},
  spec: {storageClassName: %s, volumeName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, l.class, reused.GetName()))
	l.bound("reuse")
	if there := l.present(l.remote, ClaimKind, l.remoteNS, "reuse", field("metadata.labels/app", "second")); there.GetUID() != data.GetUID() {
		t.Error("the retained data was not used again")
	}
}

// In a namespace that is not extended any more, whose remote namespace is the provider's to delete, released volumes go nevertheless.
func TestReleasedVolumesOfFormerNamespacesGo(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.start()
	l.claim("data", l.node)
	_, volume := l.bound("data")
	l.settled()
	l.mapNamespaces(nil)
	l.eventually(func() error {
		if _, still := l.manager.RemoteNamespace(l.namespace); still {
			return fmt.Errorf("%s is still extended", l.namespace)
		}
		return nil
	})
	l.local.delete(t, ClaimKind, l.namespace, "data")
	l.absent(l.local, "PersistentVolume", "", volume.GetName())
	l.present(l.remote, ClaimKind, l.remoteNS, "data")
}

// A provider's claim that is gone is told, and not made again: it would be empty.
func TestLostClaimIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.start()
	l.claim("data", l.node)
	l.bound("data")
	l.settled()
	l.remote.delete(t, ClaimKind, l.remoteNS, "data")
	l.absent(l.remote, ClaimKind, l.remoteNS, "data")
	l.event(l.namespace, ClaimKind, "data", "Warning", "ClaimLost", l.remoteNS+"/data", "restore")
	l.settled()
	if l.remote.get(t, ClaimKind, l.remoteNS, "data") != nil {
		t.Error("an empty claim was made")
	}
}
