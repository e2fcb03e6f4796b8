// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestDeletedClaimsGoWithTheirVolumes checks that the policy Delete removes the provider's claim and the volume
// together with the claim, even if the virtual kubelet does not run during the deletion. A new claim of the same name
// must get a new volume.
func TestDeletedClaimsGoWithTheirVolumes(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.Start()
	for _, name := range []string{"now", "down", "again"} {
		l.claim(name, l.Node)
		l.bound(name)
		l.disks(name, "1Gi")
	}
	_, now := l.bound("now")
	_, down := l.bound("down")
	_, again := l.bound("again")
	first := l.Remote.Get(t, reflection.ClaimKind, l.RemoteNS, "again")
	l.Local.Delete(t, reflection.ClaimKind, l.Namespace, "now")
	l.Absent(l.Remote, reflection.ClaimKind, l.RemoteNS, "now")
	l.Absent(l.Local, "PersistentVolume", "", now.GetName())

	l.Local.Delete(t, reflection.ClaimKind, l.Namespace, "again")
	l.Absent(l.Local, reflection.ClaimKind, l.Namespace, "again")
	l.claim("again", l.Node)
	_, next := l.bound("again")
	if second := l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "again"); second.GetUID() == first.GetUID() || next.GetName() == again.GetName() {
		t.Error("a new claim got the data of the former one")
	}
	l.Absent(l.Local, "PersistentVolume", "", again.GetName())
	l.Settled()
	if events := l.Events(l.Namespace, reflection.ClaimKind, "again"); len(events) > 0 {
		t.Errorf("a claim that had to wait for a moment has the Events %q", events)
	}

	l.Stop()
	l.Local.Delete(t, reflection.ClaimKind, l.Namespace, "down")
	l.Present(l.Local, "PersistentVolume", "", down.GetName(), reflectiontest.Field("status.phase", "Released"))
	l.Start()
	l.Absent(l.Remote, reflection.ClaimKind, l.RemoteNS, "down")
	l.Absent(l.Local, "PersistentVolume", "", down.GetName())
	l.bound("again")
}

// TestVolumeDeletedWithItsClaim checks that the provider's claim is deleted if the local claim and its volume are
// deleted at the same time.
func TestVolumeDeletedWithItsClaim(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.Start()
	l.claim("data", l.Node)
	_, volume := l.bound("data")
	l.disks("data", "1Gi")
	l.Local.Delete(t, "PersistentVolume", "", volume.GetName())
	l.Settled()
	if there := l.Remote.Get(t, reflection.ClaimKind, l.RemoteNS, "data"); there == nil || there.GetDeletionTimestamp() != nil {
		t.Error("the data was deleted while its claim was there")
	}
	l.Local.Delete(t, reflection.ClaimKind, l.Namespace, "data")
	l.Absent(l.Local, "PersistentVolume", "", volume.GetName())
	l.Absent(l.Remote, reflection.ClaimKind, l.RemoteNS, "data")
}

// TestVolumesDeletedDuringAnOutage checks that volumes are kept during an outage of the provider, and that the claims
// of volumes that other clients deleted during the outage are then deleted. The test is not parallel, because all
// tests share the provider.
func TestVolumesDeletedDuringAnOutage(t *testing.T) {
	l := newClaimLab(t, "Delete")
	l.Start()
	for _, name := range []string{"claim", "both"} {
		l.claim(name, l.Node)
		l.bound(name)
		l.disks(name, "1Gi")
	}
	_, first := l.bound("claim")
	_, second := l.bound("both")
	l.Settled()
	require.NoError(t, l.Remote.Cluster.StopAPIServer())
	l.Local.Delete(t, reflection.ClaimKind, l.Namespace, "claim")
	l.Local.Delete(t, reflection.ClaimKind, l.Namespace, "both")
	l.Present(l.Local, "PersistentVolume", "", second.GetName(), reflectiontest.Field("status.phase", "Released"))
	l.Local.Delete(t, "PersistentVolume", "", second.GetName())
	l.Absent(l.Local, "PersistentVolume", "", second.GetName())
	l.Settled()
	l.Present(l.Local, "PersistentVolume", "", first.GetName(), reflectiontest.Field("status.phase", "Released"))
	require.NoError(t, l.Remote.Cluster.StartAPIServer(t.Context()))
	for _, name := range []string{"claim", "both"} {
		l.Absent(l.Remote, reflection.ClaimKind, l.RemoteNS, name)
	}
	l.Absent(l.Local, "PersistentVolume", "", first.GetName())
}

// TestRetainedVolumesStay checks that the policy Retain keeps the data. A later claim of the same name must get an
// Event, and must get the data only if it requests the volume. If the policy is changed to Delete, the data must be
// deleted.
func TestRetainedVolumesStay(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Retain")
	l.Start()
	for _, name := range []string{"keep", "reuse"} {
		l.claim(name, l.Node)
		l.bound(name)
		l.disks(name, "1Gi")
	}
	_, kept := l.bound("keep")
	_, reused := l.bound("reuse")
	data := l.Remote.Get(t, reflection.ClaimKind, l.RemoteNS, "reuse")
	l.Settled()
	l.Quiet("the deletion of claims whose volumes are retained", func() {
		for _, name := range []string{"keep", "reuse"} {
			l.Local.Delete(t, reflection.ClaimKind, l.Namespace, name)
			l.Absent(l.Local, reflection.ClaimKind, l.Namespace, name)
		}
		l.Present(l.Local, "PersistentVolume", "", kept.GetName(), reflectiontest.Field("status.phase", "Released"))
	})
	// The provider's claim has no volume yet. It must still be kept, because a pod may be about to use it.
	l.claim("unused", l.Node)
	_, unused := l.bound("unused")
	l.Local.Delete(t, reflection.ClaimKind, l.Namespace, "unused")
	l.Present(l.Local, "PersistentVolume", "", unused.GetName(), reflectiontest.Field("status.phase", "Released"))
	l.Settled()
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "unused")
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })

	l.claim("keep", l.Node)
	l.Event(l.Namespace, reflection.ClaimKind, "keep", "Warning", "ProvisioningFailed", kept.GetName(), "spec.volumeName", "persistentVolumeReclaimPolicy")
	l.Local.PatchYAML(t, "PersistentVolume", "", kept.GetName(), `{spec: {persistentVolumeReclaimPolicy: Delete}}`)
	l.Absent(l.Local, "PersistentVolume", "", kept.GetName())
	l.bound("keep")

	l.Local.PatchYAML(t, "PersistentVolume", "", reused.GetName(), `{spec: {claimRef: {uid: null, resourceVersion: null}}}`)
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: reuse, labels: {app: second}},
  spec: {storageClassName: %s, volumeName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, l.class, reused.GetName()))
	l.bound("reuse")
	if there := l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "reuse", reflectiontest.Field("metadata.labels/app", "second")); there.GetUID() != data.GetUID() {
		t.Error("the retained data was not used again")
	}
}

// TestReleasedVolumesOfFormerNamespacesGo checks that the released volumes of a namespace that is no longer offloaded
// are deleted, although their remote claims are only deleted together with the remote namespace.
func TestReleasedVolumesOfFormerNamespacesGo(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.Start()
	l.claim("data", l.Node)
	_, volume := l.bound("data")
	l.Settled()
	l.MapNamespaces(nil)
	l.Eventually(func() error {
		if _, still := l.Manager.RemoteNamespace(l.Namespace); still {
			return fmt.Errorf("%s is still extended", l.Namespace)
		}
		return nil
	})
	l.Local.Delete(t, reflection.ClaimKind, l.Namespace, "data")
	l.Absent(l.Local, "PersistentVolume", "", volume.GetName())
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "data")
}

// TestLostClaimIsNotMadeAgain checks that a lost claim of the provider is reported and not recreated, because the new
// claim would be empty.
func TestLostClaimIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.Start()
	l.claim("data", l.Node)
	l.bound("data")
	l.Settled()
	l.Remote.Delete(t, reflection.ClaimKind, l.RemoteNS, "data")
	l.Absent(l.Remote, reflection.ClaimKind, l.RemoteNS, "data")
	l.Event(l.Namespace, reflection.ClaimKind, "data", "Warning", "ClaimLost", l.RemoteNS+"/data", "restore")
	l.Settled()
	if l.Remote.Get(t, reflection.ClaimKind, l.RemoteNS, "data") != nil {
		t.Error("an empty claim was made")
	}
}

// TestReleasedVolumesStayWhileTheNamespaceIsInTrouble checks that the volumes of claims are kept while the provider
// reports a problem with the remote namespace, because the data still exists.
func TestReleasedVolumesStayWhileTheNamespaceIsInTrouble(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.Start()
	l.claim("data", l.Node)
	_, volume := l.bound("data")
	l.Settled()
	l.WriteMap(l.ID, map[string]any{l.Namespace: map[string]any{"remoteNamespace": l.RemoteNS, "phase": "CreationLoopBackOff"}})
	l.Eventually(func() error {
		if _, still := l.Manager.RemoteNamespace(l.Namespace); still {
			return fmt.Errorf("%s is still extended", l.Namespace)
		}
		return nil
	})
	l.Local.Delete(t, reflection.ClaimKind, l.Namespace, "data")
	l.Present(l.Local, "PersistentVolume", "", volume.GetName(), reflectiontest.Field("status.phase", "Released"))
	l.Settled()
	if l.Local.Get(t, "PersistentVolume", "", volume.GetName()) == nil {
		t.Error("the volume was deleted before it is known that the namespace is not offloaded any more")
	}
	l.MapNamespaces(map[string]string{l.Namespace: l.RemoteNS})
	l.Absent(l.Remote, reflection.ClaimKind, l.RemoteNS, "data")
	l.Absent(l.Local, "PersistentVolume", "", volume.GetName())
}
