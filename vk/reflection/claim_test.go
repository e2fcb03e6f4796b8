// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/internal/testenv"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/claim"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// claimLab is a lab with a virtual storage class of its own here, and a real one on the provider.
type claimLab struct {
	*lab
	class, disk string
}

func newClaimLab(t *testing.T, reclaimPolicy string, change ...func(*Options)) *claimLab {
	t.Helper()
	needClusters(t)
	return newClaimLabOn(t, clusters.consumer, reclaimPolicy, change...)
}

func newClaimLabOn(t *testing.T, consumer *testenv.Cluster, reclaimPolicy string, change ...func(*Options)) *claimLab {
	t.Helper()
	l := &claimLab{}
	l.lab = newLabOn(t, consumer, append([]func(*Options){withDefaultPlugins(t), func(o *Options) {
		l.class, l.disk = "virtual-"+o.NodeName, "disk-"+o.NodeName
		o.Kinds = kinds(ClaimKind)
		o.Storage = Storage{Enabled: true, Class: l.class, RemoteClass: l.disk}
	}}, change...)...)
	l.local.create(t, "", fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s}, provisioner: liqo.io/storage,
  volumeBindingMode: WaitForFirstConsumer, allowVolumeExpansion: true, reclaimPolicy: %s}`, l.class, reclaimPolicy))
	l.remoteClass(l.disk, true)
	return l
}

func (l *claimLab) remoteClass(name string, expands bool) {
	l.Helper()
	l.remote.create(l.T, "", fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s}, provisioner: example.com/disk,
  volumeBindingMode: WaitForFirstConsumer, allowVolumeExpansion: %t}`, name, expands))
}

// claim creates one as a StatefulSet does, and selects a node for it as the scheduler does, "" for none.
func (l *claimLab) claim(name, node string, annotations ...string) *unstructured.Unstructured {
	l.Helper()
	if node != "" {
		annotations = append(annotations, "volume.kubernetes.io/selected-node: "+node)
	}
	return l.local.create(l.T, l.namespace, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, labels: {app: db}, annotations: {%s}}
spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`, name, strings.Join(annotations, ", "), l.class))
}

// bound waits until Kubernetes has bound a claim to the volume that stands for it.
func (l *claimLab) bound(name string) (claim, volume *unstructured.Unstructured) {
	l.Helper()
	claim = l.present(l.local, ClaimKind, l.namespace, name, field("status.phase", "Bound"))
	return claim, l.present(l.local, "PersistentVolume", "", raw.Text(claim, "spec", "volumeName"), field("status.phase", "Bound"))
}

// disks gives the provider's claim a volume, as its provisioner does.
func (l *claimLab) disks(name, size string) {
	l.Helper()
	claim := l.present(l.remote, ClaimKind, l.remoteNS, name)
	l.remote.create(l.T, "", fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s-%s}
spec: {storageClassName: %s, accessModes: [ReadWriteOnce], capacity: {storage: %s}, csi: {driver: disk.example.com, volumeHandle: x},
  claimRef: {namespace: %s, name: %s, uid: %s}}`, l.remoteNS, name, raw.Text(claim, "spec", "storageClassName"), size, l.remoteNS, name, claim.GetUID()))
	l.present(l.remote, ClaimKind, l.remoteNS, name, field("status.phase", "Bound"), field("status.capacity.storage", size))
}

// A claim of a StatefulSet: one write makes the claim on the provider, one the volume here, Kubernetes binds them, and what
// changes later crosses by one write each.
func TestClaimsGetVolumesOnTheProvider(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.start()
	made := l.claim("data-db-0", "", "note: a")
	l.settled()
	l.local.patchYAML(t, ClaimKind, l.namespace, "data-db-0", "{metadata: {annotations: {volume.kubernetes.io/selected-node: "+l.node+"}}}")
	name := "pvc-" + string(made.GetUID())
	l.present(l.remote, ClaimKind, l.remoteNS, "data-db-0", field("spec.storageClassName", l.disk), field("spec.accessModes", "[ReadWriteOnce]"),
		field("spec.resources.requests.storage", "1Gi"), field("spec.volumeMode", "Filesystem"), field("metadata.labels/app", "db"), field("metadata.annotations/note", "a"),
		field("metadata.annotations/"+claim.OriginVolumeAnnotation, name), field("metadata.annotations/volume.kubernetes.io/selected-node", ""))
	claim, volume := l.bound("data-db-0")
	for path, want := range map[string]string{
		"metadata.name": name, "metadata.annotations/pv.kubernetes.io/provisioned-by": "liqo.io/storage",
		"spec.storageClassName": l.class, "spec.capacity.storage": "1Gi", "spec.accessModes": "[ReadWriteOnce]", "spec.volumeMode": "Filesystem",
		"spec.persistentVolumeReclaimPolicy": "Delete", "spec.claimRef.uid": string(claim.GetUID()), "spec.hostPath.type": "Directory",
		"spec.nodeAffinity.required.nodeSelectorTerms": fmt.Sprintf("[map[matchExpressions:[map[key:liqo.io/remote-cluster-id operator:In values:[%s]]]]]", l.id),
	} {
		if err := field(path, want)(volume); err != nil {
			t.Error(err)
		}
	}
	l.settled()
	l.quiet("a volume on the provider, of the size that was asked for,", func() { l.disks("data-db-0", "1Gi") })
	l.stop()
	l.quiet("a restart", func() { l.start() })
	l.local.patchYAML(t, ClaimKind, l.namespace, "data-db-0", `{metadata: {labels: {tier: gold}, annotations: {note: null}}}`)
	l.present(l.remote, ClaimKind, l.remoteNS, "data-db-0", field("metadata.labels/tier", "gold"), field("metadata.annotations/note", ""))
	l.settled()
	if writes := l.remote.writes(t); len(writes) != 2 {
		t.Errorf("a claim and one change took the writes %q to the provider", writes)
	}
	if writes := l.local.writes(t); len(writes) != 1 || writes[0] != "create persistentvolumes "+name && writes[0] != "create persistentvolumes " {
		t.Errorf("a claim took the writes %q here, want the volume", writes)
	}
	if events := l.events(l.namespace, ClaimKind, "data-db-0"); len(events) > 0 {
		t.Errorf("a claim without trouble has the Events %q", events)
	}
}

// A claim that is bound is made larger: the provider's follows when it can, and this side when it has.
func TestBoundClaimsGrow(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.start()
	l.claim("data", l.node)
	_, volume := l.bound("data")
	l.settled()
	l.quiet("growth while the provider has no volume yet", func() {
		l.local.patchYAML(t, ClaimKind, l.namespace, "data", `{spec: {resources: {requests: {storage: 2Gi}}}}`)
	})
	l.disks("data", "1Gi")
	l.present(l.remote, ClaimKind, l.remoteNS, "data", field("spec.resources.requests.storage", "2Gi"))
	l.settled()
	l.present(l.local, ClaimKind, l.namespace, "data", field("status.capacity.storage", "1Gi"))
	before := len(l.local.writes(t))
	l.remote.patchYAML(t, ClaimKind, l.remoteNS, "data", `{status: {capacity: {storage: 2Gi}, conditions: [{type: FileSystemResizePending, status: "True"}]}}`, "status")
	l.present(l.local, ClaimKind, l.namespace, "data", field("status.capacity.storage", "2Gi"), says("FileSystemResizePending", "True"), field("status.phase", "Bound"))
	l.present(l.local, "PersistentVolume", "", volume.GetName(), field("spec.capacity.storage", "2Gi"), field("status.phase", "Bound"))
	l.settled()
	if made := l.local.writes(t)[before:]; len(made) != 2 {
		t.Errorf("growth took the writes %q, want the volume and the claim's status", made)
	}
	l.remote.patchYAML(t, ClaimKind, l.remoteNS, "data", `{spec: {resources: {requests: {storage: 3Gi}}}}`)
	l.remote.patchYAML(t, ClaimKind, l.remoteNS, "data", `{status: {capacity: {storage: 3Gi}, conditions: null}}`, "status")
	l.present(l.local, ClaimKind, l.namespace, "data", field("status.capacity.storage", "3Gi"), says("FileSystemResizePending", ""))
	l.settled()
	l.present(l.remote, ClaimKind, l.remoteNS, "data", field("spec.resources.requests.storage", "3Gi"))
	if events := l.events(l.namespace, ClaimKind, "data"); len(events) > 0 {
		t.Errorf("a claim that has grown has the Events %q", events)
	}
	l.stop()
	l.quiet("a restart", func() { l.start() })
}

func TestAClassThatDoesNotExpandIsTold(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.remoteClass(l.disk+"-fixed", false)
	l.start()
	l.claim("data", l.node, "liqo.io/remote-storage-class: "+l.disk+"-fixed")
	l.bound("data")
	l.disks("data", "1Gi")
	l.local.patchYAML(t, ClaimKind, l.namespace, "data", `{metadata: {labels: {app: other}}, spec: {resources: {requests: {storage: 2Gi}}}}`)
	l.event(l.namespace, ClaimKind, "data", "Warning", "VolumeResizeFailed", "must support resize", "allowVolumeExpansion", l.id)
}

// The class on the provider: that of the annotation, else that which the claim has, else the negotiated one, followed at
// run time, else that of the flag, else the provider's own default.
func TestClassOfTheProvider(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	for _, class := range []string{"fast", "slow"} {
		l.remoteClass(class+l.node, true)
	}
	l.start()
	l.claim("by-flag", l.node)
	l.present(l.remote, ClaimKind, l.remoteNS, "by-flag", field("spec.storageClassName", l.disk))
	l.claim("by-annotation", l.node, "liqo.io/remote-storage-class: fast"+l.node)
	l.present(l.remote, ClaimKind, l.remoteNS, "by-annotation", field("spec.storageClassName", "fast"+l.node))
	l.bound("by-flag")
	l.bound("by-annotation")
	l.settled()
	l.quiet("another negotiated class, where claims have theirs,", func() {
		l.local.patchYAML(t, "VirtualNode", l.tenant, l.node, fmt.Sprintf(`{spec: {storageClasses: [{storageClassName: fast%s}, {storageClassName: slow%s, default: true}]}}`, l.node, l.node))
	})
	l.claim("negotiated", l.node)
	l.present(l.remote, ClaimKind, l.remoteNS, "negotiated", field("spec.storageClassName", "slow"+l.node))
	l.local.patchYAML(t, "VirtualNode", l.tenant, l.node, fmt.Sprintf(`{spec: {storageClasses: [{storageClassName: fast%s}]}}`, l.node))
	l.settled()
	l.claim("the-first", l.node)
	l.present(l.remote, ClaimKind, l.remoteNS, "the-first", field("spec.storageClassName", "fast"+l.node))
	l.present(l.remote, ClaimKind, l.remoteNS, "negotiated", field("spec.storageClassName", "slow"+l.node))
}

// Where no class is named the provider's API server puts its own: that is no reason to write again.
func TestDefaultClassOfTheProvider(t *testing.T) {
	// Not parallel: the default class belongs to all.
	l := newClaimLab(t, "Delete", func(o *Options) { o.Storage.RemoteClass = "" })
	l.remote.patchYAML(t, "StorageClass", "", l.disk, `{metadata: {annotations: {storageclass.kubernetes.io/is-default-class: "true"}}}`)
	defer l.remote.delete(t, "StorageClass", "", l.disk)
	l.start()
	l.claim("data", l.node)
	l.present(l.remote, ClaimKind, l.remoteNS, "data", field("spec.storageClassName", l.disk))
	l.bound("data")
	l.settled()
	l.stop()
	l.quiet("a restart", func() { l.start() })
	if writes := l.remote.writes(t); len(writes) != 1 {
		t.Errorf("a claim took the writes %q", writes)
	}
}

// Without storage on this provider, another node is to be selected.
func TestWithoutStorageTheClaimIsSentAway(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete", func(o *Options) { o.Storage.Enabled = false })
	l.start()
	l.claim("data", l.node)
	l.present(l.local, ClaimKind, l.namespace, "data", field("metadata.annotations/volume.kubernetes.io/selected-node", ""),
		field("metadata.annotations/volume.kubernetes.io/storage-provisioner", "liqo.io/storage"))
	l.event(l.namespace, ClaimKind, "data", "Warning", "ReschedulingRequired", l.node, "storage.liqo.io/available")
	l.settled()
	if l.remote.get(t, ClaimKind, l.remoteNS, "data") != nil {
		t.Error("the claim crossed")
	}
}

// Claims that are not for this provider cost nothing: no write, no Event, no copy.
func TestClaimsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	elsewhere, worker := l.node+"-elsewhere", l.node+"-worker"
	l.local.create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {liqo.io/remote-cluster-id: turin, liqo.io/type: virtual-node}}}`, elsewhere))
	l.local.create(t, "", fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s}}`, worker))
	l.local.create(t, "", fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: other-%s}, provisioner: example.com/disk, volumeBindingMode: WaitForFirstConsumer}`, l.node))
	l.start()
	l.quiet("claims of others", func() {
		l.claim("for-turin", elsewhere)
		l.claim("for-a-worker", worker)
		l.claim("for-nobody-known", "unknown")
		l.claim("not-selected", "")
		l.local.create(t, l.namespace, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: other-class, annotations: {volume.kubernetes.io/selected-node: %s}},
  spec: {storageClassName: other-%s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, l.node, l.node))
		l.local.create(t, l.namespace, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: bound, annotations: {volume.kubernetes.io/selected-node: %s}},
  spec: {storageClassName: %s, volumeName: by-hand, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, l.node, l.class))
		for _, name := range []string{"for-turin", "for-a-worker", "for-nobody-known"} {
			l.present(l.local, ClaimKind, l.namespace, name, field("metadata.annotations/volume.kubernetes.io/storage-provisioner", "liqo.io/storage"))
		}
	})
	// The node turns out to be one of this provider's.
	l.local.patchYAML(t, "Node", "", worker, fmt.Sprintf(`{metadata: {labels: {liqo.io/remote-cluster-id: %s}}}`, l.id))
	l.bound("for-a-worker")
}

func TestOnlyTheLeaderProvidesForClaims(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.startUnready()
	l.manager.SetLeading(false)
	l.claim("data", l.node)
	l.present(l.local, ClaimKind, l.namespace, "data", field("metadata.annotations/volume.kubernetes.io/storage-provisioner", "liqo.io/storage"))
	l.settled()
	if writes := append(l.remote.writes(t), l.local.writes(t)...); len(writes) > 0 {
		t.Errorf("one that does not lead made the writes %q", writes)
	}
	l.manager.SetLeading(true)
	l.bound("data")
}
