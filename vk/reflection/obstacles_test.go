// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// withPods is an option that reflects pods in addition to claims.
func withPods(o *reflection.Options) {
	o.Kinds = reflectiontest.Kinds(reflection.ClaimKind, reflection.PodKind)
}

// keptClaim creates a claim whose class is not the virtual one.
func (l *claimLab) keptClaim(name, node string) *unstructured.Unstructured {
	l.Helper()
	annotations := ""
	if node != "" {
		annotations = "volume.kubernetes.io/selected-node: " + node
	}
	return l.Local.Create(l.T, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s, annotations: {%s}},
  spec: {storageClassName: nfs-%s, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}}`, name, annotations, l.Node))
}

// nfs binds a claim of this cluster to a volume that every node can mount.
func (l *claimLab) nfs(claim string) {
	l.Helper()
	l.Local.Create(l.T, "", fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: nfs-%[1]s-%[2]s}
spec: {storageClassName: nfs-%[1]s, accessModes: [ReadWriteMany], capacity: {storage: 1Gi}, nfs: {server: nfs.example.com, path: /x}, claimRef: {namespace: %[3]s, name: %[2]s}}`, l.Node, claim, l.Namespace))
	l.Present(l.Local, reflection.ClaimKind, l.Namespace, claim, reflectiontest.Field("status.phase", "Bound"))
}

// TestPodsThatNeedWhatNeverCrosses checks that a pod's reference to an object that is never reflected is reported at
// once, with a remedy, and that no ShadowPod is created. References to reflected objects, and references that the
// user has declared to exist on the provider, are allowed.
func TestPodsThatNeedWhatNeverCrosses(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete", withPods)
	l.Start()
	l.keptClaim("shared", "")
	l.nfs("shared")
	for name, tc := range map[string]struct {
		fields string
		words  []string
	}{
		"claim":    {`volumes: [{name: v, persistentVolumeClaim: {claimName: shared}}]`, []string{"spec.volumes v", "PersistentVolumeClaim shared", "nfs-" + l.Node, "storage class " + l.class, "PersistentVolumeClaim"}},
		"template": {fmt.Sprintf(`volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: nfs-%s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]`, l.Node), []string{"spec.volumes v", "nfs-" + l.Node, "storage class " + l.class}},
		"devices":  {`resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]`, []string{"spec.resourceClaims gpu", "ResourceClaim"}},
	} {
		l.podWith(name, "", tc.fields)
		l.Present(l.Local, "Pod", l.Namespace, name, reflectiontest.Field("status.phase", "Pending"), reflectiontest.Field("status.reason", "OffloadingBackOff"))
		l.Event(l.Namespace, "Pod", name, append(tc.words, "Warning", "ReflectionDisabled", "virtual-node", pod.RemoteReferencesAnnotation)...)
		l.podWith(name+"-remote", pod.RemoteReferencesAnnotation+`: "`+tc.words[len(tc.words)-1]+`"`, tc.fields)
		if name != "template" { // the last word of this name is not a kind
			l.Present(l.Remote, "ShadowPod", l.RemoteNS, name+"-remote", reflectiontest.Field("metadata.annotations/"+pod.RemoteReferencesAnnotation, ""))
		}
	}
	l.podWith("virtual-template", "", fmt.Sprintf(`volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]`, l.class))
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "virtual-template")
	l.Settled()
	for _, name := range []string{"claim", "template", "devices", "template-remote"} {
		if l.Remote.Get(t, "ShadowPod", l.RemoteNS, name) != nil {
			t.Errorf("pod %s was offloaded", name)
		}
	}
	if writes := l.Local.Writes(t); len(writes) == 0 {
		t.Error("no write is logged")
	}
}

// podWith creates a pod on the virtual node. The pod has the given annotation and fields in its spec.
func (l *claimLab) podWith(name, annotation, fields string) {
	l.Helper()
	l.Local.Create(l.T, l.Namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {%s}}
spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i}], %s}`, name, annotation, l.Node, fields))
}

// TestObstaclesConcernNewPodsOnly checks that a pod stays on the provider whatever happens to its local claim later,
// even if the virtual kubelet is restarted. A rejected pod is offloaded when its claim is replaced by one that is
// reflected.
func TestObstaclesConcernNewPodsOnly(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete", withPods)
	l.Start()
	l.podWith("running", "", `volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]`)
	l.RunRemote("running", `{phase: Running, containerStatuses: [{name: c, image: i, imageID: i, ready: true, restartCount: 0, state: {running: {}}}]}`)
	l.Present(l.Local, "Pod", l.Namespace, "running", reflectiontest.Field("status.phase", "Running"))
	l.keptClaim("data", "")
	l.podWith("new", "", `volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]`)
	l.Event(l.Namespace, "Pod", "new", "ReflectionDisabled", "PersistentVolumeClaim data")
	l.Settled()
	l.Stop()
	l.Start()
	l.Settled()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "running")
	l.Present(l.Local, "Pod", l.Namespace, "running", reflectiontest.Field("status.phase", "Running"))
	if l.Remote.Get(t, "ShadowPod", l.RemoteNS, "new") != nil {
		t.Error("a restart has offloaded a pod that was refused")
	}
	l.Local.PatchYAML(t, reflection.ClaimKind, l.Namespace, "data", `{metadata: {finalizers: null}}`)
	l.Local.DeleteNow(t, reflection.ClaimKind, l.Namespace, "data")
	l.Eventually(func() error { // this takes a while, because Kubernetes does not delete a claim while a pod uses it
		if l.Local.Get(t, reflection.ClaimKind, l.Namespace, "data") == nil {
			return nil
		}
		_, err := l.Local.Of(reflection.ClaimKind, l.Namespace).Patch(t.Context(), "data", types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
		return errors.Join(errors.New("the claim is still there"), err)
	})
	l.claim("data", "")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "new")
}

// TestTheSchedulerLooksElsewhereForOtherClasses checks with a real scheduler that a claim whose provisioner does not
// create volumes for a virtual node is returned to the scheduler, so that its pod runs on another node. A bound claim
// must keep its volume.
func TestTheSchedulerLooksElsewhereForOtherClasses(t *testing.T) {
	t.Parallel()
	consumer := testenv.ForTest(t, testenv.Options{Name: "vaasa", CRDPaths: []string{"../../api/crds"}, AuditLog: true})[0]
	l := newClaimLabOn(t, consumer, "Delete", withPods)
	l.Local.Create(t, "", fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: nfs-%s}, provisioner: example.com/local, volumeBindingMode: WaitForFirstConsumer}`, l.Node))
	l.Start()
	l.keptClaim("data-db-0", "")
	l.readyNode(l.Node)
	l.stateful("db-0", "data-db-0")
	l.Event(l.Namespace, reflection.ClaimKind, "data-db-0", "Warning", "ReschedulingRequired", l.Node, "nfs-"+l.Node, l.class, "virtual-node")
	l.Local.Create(t, "", `{apiVersion: v1, kind: Node, metadata: {name: worker-1, labels: {worker: ""}}}`)
	l.Local.PatchYAML(t, "Node", "", l.Node, `{spec: {unschedulable: true}}`)
	l.readyNode("worker-1")
	l.Present(l.Local, reflection.ClaimKind, l.Namespace, "data-db-0", reflectiontest.Field("metadata.annotations/volume.kubernetes.io/selected-node", "worker-1"))

	l.keptClaim("bound", "")
	l.nfs("bound")
	l.Settled()
	l.Quiet("a bound claim of another class", func() {
		l.Local.PatchYAML(t, reflection.ClaimKind, l.Namespace, "bound", "{metadata: {annotations: {volume.kubernetes.io/selected-node: "+l.Node+"}}}")
	})
}
