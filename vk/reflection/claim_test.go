// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/claim"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// claimLab is a lab with its own virtual storage class in this cluster, and a real storage class on the provider.
type claimLab struct {
	*lab
	class, disk string
}

func newClaimLab(t *testing.T, reclaimPolicy string, change ...func(*reflection.Options)) *claimLab {
	t.Helper()
	return newClaimLabOn(t, reflectiontest.Consumer(t), reclaimPolicy, change...)
}

func newClaimLabOn(t *testing.T, consumer *testenv.Cluster, reclaimPolicy string, change ...func(*reflection.Options)) *claimLab {
	t.Helper()
	l := &claimLab{}
	l.lab = newLabOn(t, consumer, append([]func(*reflection.Options){reflectiontest.WithDefaultPlugins(t), func(o *reflection.Options) {
		l.class, l.disk = "virtual-"+o.NodeName, "disk-"+o.NodeName
		o.Kinds = reflectiontest.Kinds(reflection.ClaimKind)
		o.Storage = reflection.Storage{Enabled: true, Class: l.class, RemoteClass: l.disk}
	}}, change...)...)
	l.Local.Create(t, "", fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s}, provisioner: liqo.io/storage,
  volumeBindingMode: WaitForFirstConsumer, allowVolumeExpansion: true, reclaimPolicy: %s}`, l.class, reclaimPolicy))
	l.remoteClass(l.disk, true)
	return l
}

func (l *claimLab) remoteClass(name string, expands bool) {
	l.Helper()
	l.Remote.Create(l.T, "", fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s}, provisioner: example.com/disk,
  volumeBindingMode: WaitForFirstConsumer, allowVolumeExpansion: %t}`, name, expands))
}

// claim creates a claim as a StatefulSet does, and selects a node for the claim as the scheduler does. If node is
// empty, no node is selected.
func (l *claimLab) claim(name, node string, annotations ...string) *unstructured.Unstructured {
	l.Helper()
	if node != "" {
		annotations = append(annotations, "volume.kubernetes.io/selected-node: "+node)
	}
	return l.Local.Create(l.T, l.Namespace, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, labels: {app: db}, annotations: {%s}}
spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`, name, strings.Join(annotations, ", "), l.class))
}

// bound waits until Kubernetes has bound a claim to the volume that represents it.
func (l *claimLab) bound(name string) (claim, volume *unstructured.Unstructured) {
	l.Helper()
	claim = l.Present(l.Local, reflection.ClaimKind, l.Namespace, name, reflectiontest.Field("status.phase", "Bound"))
	return claim, l.Present(l.Local, "PersistentVolume", "", raw.Text(claim, "spec", "volumeName"), reflectiontest.Field("status.phase", "Bound"))
}

// disks binds the provider's claim to a volume, as a provisioner does.
func (l *claimLab) disks(name, size string) {
	l.Helper()
	claim := l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, name)
	l.Remote.Create(l.T, "", fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s-%s}
spec: {storageClassName: %s, accessModes: [ReadWriteOnce], capacity: {storage: %s}, csi: {driver: disk.example.com, volumeHandle: x},
  claimRef: {namespace: %s, name: %s, uid: %s}}`, l.RemoteNS, name, raw.Text(claim, "spec", "storageClassName"), size, l.RemoteNS, name, claim.GetUID()))
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, name, reflectiontest.Field("status.phase", "Bound"), reflectiontest.Field("status.capacity.storage", size))
}

// TestClaimsGetVolumesOnTheProvider checks for a claim of a StatefulSet that one write creates the claim on the
// provider, that another write creates the local volume, that Kubernetes binds the volume to the local claim, and
// that each later change causes one write on the provider.
func TestClaimsGetVolumesOnTheProvider(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.Start()
	made := l.claim("data-db-0", "", "note: a")
	l.Settled()
	l.Local.PatchYAML(t, reflection.ClaimKind, l.Namespace, "data-db-0", "{metadata: {annotations: {volume.kubernetes.io/selected-node: "+l.Node+"}}}")
	name := "pvc-" + string(made.GetUID())
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "data-db-0", reflectiontest.Field("spec.storageClassName", l.disk), reflectiontest.Field("spec.accessModes", "[ReadWriteOnce]"),
		reflectiontest.Field("spec.resources.requests.storage", "1Gi"), reflectiontest.Field("spec.volumeMode", "Filesystem"), reflectiontest.Field("metadata.labels/app", "db"), reflectiontest.Field("metadata.annotations/note", "a"),
		reflectiontest.Field("metadata.annotations/"+claim.OriginVolumeAnnotation, name), reflectiontest.Field("metadata.annotations/volume.kubernetes.io/selected-node", ""))
	claim, volume := l.bound("data-db-0")
	for path, want := range map[string]string{
		"metadata.name": name, "metadata.annotations/pv.kubernetes.io/provisioned-by": "liqo.io/storage",
		"spec.storageClassName": l.class, "spec.capacity.storage": "1Gi", "spec.accessModes": "[ReadWriteOnce]", "spec.volumeMode": "Filesystem",
		"spec.persistentVolumeReclaimPolicy": "Delete", "spec.claimRef.uid": string(claim.GetUID()), "spec.hostPath.type": "Directory",
		"spec.nodeAffinity.required.nodeSelectorTerms": fmt.Sprintf("[map[matchExpressions:[map[key:liqo.io/remote-cluster-id operator:In values:[%s]]]]]", l.ID),
	} {
		assert.NoError(t, reflectiontest.Field(path, want)(volume))
	}
	l.Settled()
	l.Quiet("a volume on the provider, of the size that was asked for,", func() { l.disks("data-db-0", "1Gi") })
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.Local.PatchYAML(t, reflection.ClaimKind, l.Namespace, "data-db-0", `{metadata: {labels: {tier: gold}, annotations: {note: null}}}`)
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "data-db-0", reflectiontest.Field("metadata.labels/tier", "gold"), reflectiontest.Field("metadata.annotations/note", ""))
	l.Settled()
	if writes := l.Remote.Writes(t); len(writes) != 2 {
		t.Errorf("a claim and one change took the writes %q to the provider", writes)
	}
	if writes := l.Local.Writes(t); len(writes) != 1 || writes[0] != "create persistentvolumes "+name && writes[0] != "create persistentvolumes " {
		t.Errorf("a claim took the writes %q here, want the volume", writes)
	}
	if events := l.Events(l.Namespace, reflection.ClaimKind, "data-db-0"); len(events) > 0 {
		t.Errorf("a claim without trouble has the Events %q", events)
	}
}

// TestBoundClaimsGrow checks that the expansion of a bound claim reaches the provider if the provider supports it,
// and that the new capacity is shown in this cluster when the provider's volume has it.
func TestBoundClaimsGrow(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.Start()
	l.claim("data", l.Node)
	_, volume := l.bound("data")
	l.Settled()
	l.Quiet("growth while the provider has no volume yet", func() {
		l.Local.PatchYAML(t, reflection.ClaimKind, l.Namespace, "data", `{spec: {resources: {requests: {storage: 2Gi}}}}`)
	})
	l.disks("data", "1Gi")
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "data", reflectiontest.Field("spec.resources.requests.storage", "2Gi"))
	l.Settled()
	l.Present(l.Local, reflection.ClaimKind, l.Namespace, "data", reflectiontest.Field("status.capacity.storage", "1Gi"))
	before := len(l.Local.Writes(t))
	l.Remote.PatchYAML(t, reflection.ClaimKind, l.RemoteNS, "data", `{status: {capacity: {storage: 2Gi}, conditions: [{type: FileSystemResizePending, status: "True"}]}}`, "status")
	l.Present(l.Local, reflection.ClaimKind, l.Namespace, "data", reflectiontest.Field("status.capacity.storage", "2Gi"), says("FileSystemResizePending", "True"), reflectiontest.Field("status.phase", "Bound"))
	l.Present(l.Local, "PersistentVolume", "", volume.GetName(), reflectiontest.Field("spec.capacity.storage", "2Gi"), reflectiontest.Field("status.phase", "Bound"))
	l.Settled()
	if made := l.Local.Writes(t)[before:]; len(made) != 2 {
		t.Errorf("growth took the writes %q, want the volume and the claim's status", made)
	}
	l.Remote.PatchYAML(t, reflection.ClaimKind, l.RemoteNS, "data", `{spec: {resources: {requests: {storage: 3Gi}}}}`)
	l.Remote.PatchYAML(t, reflection.ClaimKind, l.RemoteNS, "data", `{status: {capacity: {storage: 3Gi}, conditions: null}}`, "status")
	l.Present(l.Local, reflection.ClaimKind, l.Namespace, "data", reflectiontest.Field("status.capacity.storage", "3Gi"), says("FileSystemResizePending", ""))
	l.Settled()
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "data", reflectiontest.Field("spec.resources.requests.storage", "3Gi"))
	if events := l.Events(l.Namespace, reflection.ClaimKind, "data"); len(events) > 0 {
		t.Errorf("a claim that has grown has the Events %q", events)
	}
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
}

func TestAClassThatDoesNotExpandIsTold(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.remoteClass(l.disk+"-fixed", false)
	l.Start()
	l.claim("data", l.Node, "liqo.io/remote-storage-class: "+l.disk+"-fixed")
	l.bound("data")
	l.disks("data", "1Gi")
	l.Local.PatchYAML(t, reflection.ClaimKind, l.Namespace, "data", `{metadata: {labels: {app: other}}, spec: {resources: {requests: {storage: 2Gi}}}}`)
	l.Event(l.Namespace, reflection.ClaimKind, "data", "Warning", "VolumeResizeFailed", "must support resize", "allowVolumeExpansion", l.ID)
}

// TestClassOfTheProvider checks the precedence of the sources of the storage class of the provider's claim: the
// annotation, the provider's existing claim, the negotiated classes (the default one, otherwise the first one), which
// may change at run time, and the flag. See TestDefaultClassOfTheProvider for a claim without any of them.
func TestClassOfTheProvider(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	for _, class := range []string{"fast", "slow"} {
		l.remoteClass(class+l.Node, true)
	}
	l.Start()
	l.claim("by-flag", l.Node)
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "by-flag", reflectiontest.Field("spec.storageClassName", l.disk))
	l.claim("by-annotation", l.Node, "liqo.io/remote-storage-class: fast"+l.Node)
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "by-annotation", reflectiontest.Field("spec.storageClassName", "fast"+l.Node))
	l.bound("by-flag")
	l.bound("by-annotation")
	l.Settled()
	l.Quiet("another negotiated class, where claims have theirs,", func() {
		l.Local.PatchYAML(t, "VirtualNode", l.Tenant, l.Node, fmt.Sprintf(`{spec: {storageClasses: [{storageClassName: fast%s}, {storageClassName: slow%s, default: true}]}}`, l.Node, l.Node))
	})
	l.claim("negotiated", l.Node)
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "negotiated", reflectiontest.Field("spec.storageClassName", "slow"+l.Node))
	l.Local.PatchYAML(t, "VirtualNode", l.Tenant, l.Node, fmt.Sprintf(`{spec: {storageClasses: [{storageClassName: fast%s}]}}`, l.Node))
	l.Settled()
	l.claim("the-first", l.Node)
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "the-first", reflectiontest.Field("spec.storageClassName", "fast"+l.Node))
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "negotiated", reflectiontest.Field("spec.storageClassName", "slow"+l.Node))
}

// TestDefaultClassOfTheProvider checks that no further write follows when the provider's API server adds its default
// class to a claim without a class.
func TestDefaultClassOfTheProvider(t *testing.T) {
	// The test is not parallel, because all tests share the default class.
	l := newClaimLab(t, "Delete", func(o *reflection.Options) { o.Storage.RemoteClass = "" })
	l.Remote.PatchYAML(t, "StorageClass", "", l.disk, `{metadata: {annotations: {storageclass.kubernetes.io/is-default-class: "true"}}}`)
	defer l.Remote.Delete(t, "StorageClass", "", l.disk)
	l.Start()
	l.claim("data", l.Node)
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "data", reflectiontest.Field("spec.storageClassName", l.disk))
	l.bound("data")
	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	if writes := l.Remote.Writes(t); len(writes) != 1 {
		t.Errorf("a claim took the writes %q", writes)
	}
}

// TestWithoutStorageTheClaimIsSentAway checks that the scheduler is made to select another node if storage is
// disabled for this provider.
func TestWithoutStorageTheClaimIsSentAway(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete", func(o *reflection.Options) { o.Storage.Enabled = false })
	l.Start()
	l.claim("data", l.Node)
	l.Present(l.Local, reflection.ClaimKind, l.Namespace, "data", reflectiontest.Field("metadata.annotations/volume.kubernetes.io/selected-node", ""),
		reflectiontest.Field("metadata.annotations/volume.kubernetes.io/storage-provisioner", "liqo.io/storage"))
	l.Event(l.Namespace, reflection.ClaimKind, "data", "Warning", "ReschedulingRequired", l.Node, "storage.liqo.io/available")
	l.Settled()
	if l.Remote.Get(t, reflection.ClaimKind, l.RemoteNS, "data") != nil {
		t.Error("the claim crossed")
	}
}

// TestClaimsOfOthersAreLeftAlone checks that claims for other provisioners cause no write, no Event and no copy.
func TestClaimsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	elsewhere, worker := l.Node+"-elsewhere", l.Node+"-worker"
	l.Local.Create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {liqo.io/remote-cluster-id: turin, liqo.io/type: virtual-node}}}`, elsewhere))
	l.Local.Create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s}}`, worker))
	l.Local.Create(t, "", fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: other-%s}, provisioner: example.com/disk, volumeBindingMode: WaitForFirstConsumer}`, l.Node))
	l.Start()
	l.Quiet("claims of others", func() {
		l.claim("for-turin", elsewhere)
		l.claim("for-a-worker", worker)
		l.claim("for-nobody-known", "unknown")
		l.claim("not-selected", "")
		l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: other-class, annotations: {volume.kubernetes.io/selected-node: %s}},
  spec: {storageClassName: other-%s, volumeName: by-hand, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, l.Node, l.Node))
		l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: bound, annotations: {volume.kubernetes.io/selected-node: %s}},
  spec: {storageClassName: %s, volumeName: by-hand, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, l.Node, l.class))
		for _, name := range []string{"for-turin", "for-a-worker", "for-nobody-known"} {
			l.Present(l.Local, reflection.ClaimKind, l.Namespace, name, reflectiontest.Field("metadata.annotations/volume.kubernetes.io/storage-provisioner", "liqo.io/storage"))
		}
	})
	// The node becomes a virtual node of this provider. The claim must then be provisioned on the provider.
	l.Local.PatchYAML(t, "Node", "", worker, fmt.Sprintf(`{metadata: {labels: {liqo.io/remote-cluster-id: %s}}}`, l.ID))
	l.bound("for-a-worker")
}

func TestOnlyTheLeaderProvidesForClaims(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.StartUnready()
	l.Manager.SetLeading(false)
	l.claim("data", l.Node)
	l.Present(l.Local, reflection.ClaimKind, l.Namespace, "data", reflectiontest.Field("metadata.annotations/volume.kubernetes.io/storage-provisioner", "liqo.io/storage"))
	l.Settled()
	if writes := append(l.Remote.Writes(t), l.Local.Writes(t)...); len(writes) > 0 {
		t.Errorf("one that does not lead made the writes %q", writes)
	}
	l.Manager.SetLeading(true)
	l.bound("data")
}
