// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

const (
	runningStatus = `{phase: Running, podIP: 10.245.0.9, podIPs: [{ip: 10.245.0.9}], conditions: [{type: Ready, status: "True"}],
  containerStatuses: [{name: web, image: "web:1", imageID: x, ready: true, restartCount: %d, state: {running: {startedAt: "2026-01-01T00:00:00Z"}}}]}`
	shadowPod = `{apiVersion: offloading.liqo.io/v1beta1, kind: ShadowPod, metadata: {name: %s, labels: {%s}}, spec: {pod: {containers: [{name: web, image: "web:1"}]}}}`
)

func running(restarts int) string { return fmt.Sprintf(runningStatus, restarts) }

func TestPodLife(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.ChainsForPods()
	l.Start()
	pod := l.Pod("web")
	shadow := l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/app", "web"), reflectiontest.Field("metadata.annotations/note", "hello"),
		reflectiontest.Field("metadata.labels/offloading.liqo.io/nodename", l.Node), reflectiontest.Field("metadata.annotations/plugins.refract.io/origin-uid", string(pod.GetUID())))
	if containers, _, _ := unstructured.NestedSlice(shadow.Object, "spec", "pod", "containers"); len(containers) != 1 {
		t.Errorf("the ShadowPod has the containers %v", containers)
	}
	l.RunRemote("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), reflectiontest.Field("status.podIP", "10.245.0.9"), reflectiontest.Field("status.hostIP", "10.9.8.7"),
		reflectiontest.Field("metadata.labels/liqo.io/shadowPod", "true"))
	l.Settled()
	if writes := append(l.Local.Writes(t), l.Remote.Writes(t)...); len(writes) != 2 {
		t.Errorf("a pod up to Running took the writes %q, want two: the ShadowPod and the status", writes)
	}
	if events := l.Events(l.Namespace, "Pod", "web"); len(events) > 0 {
		t.Errorf("a pod without trouble has the Events %q", events)
	}
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })

	// The metadata and the mutable fields of the spec must be updated. All other fields of the spec must not change.
	l.Chains.Swap("Pod", host.Outgoing, func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
		return &host.Outcome{}, doc.SetString("spec.priorityClassName", "none of our business now")
	})
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{metadata: {labels: {tier: front}}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/tier", "front"), reflectiontest.Field("spec.pod.priorityClassName", ""))
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{spec: {containers: [{name: web, image: "web:2", imagePullPolicy: IfNotPresent, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File}]}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", func(o *unstructured.Unstructured) error {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "pod", "containers")
		return reflectiontest.Field("image", "web:2")(&unstructured.Unstructured{Object: containers[0].(map[string]any)})
	})
	// While the node is not ready, the pod must not be ready either, and the ShadowPod must not be changed.
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{metadata: {labels: {liqo.io/remote-unavailable: "true", tier: back}}}`)
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.conditions", "[map[lastProbeTime:<nil> lastTransitionTime:<nil> status:False type:Ready]]"))
	l.Settled()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/tier", "front"))
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{metadata: {labels: {liqo.io/remote-unavailable: null}}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/tier", "back"), reflectiontest.Field("metadata.labels/liqo.io/shadowPod", ""))

	// The provider's pod is lost and recreated. The restart count must not decrease.
	l.RemoteStatus("web", running(3))
	l.Present(l.Local, "Pod", l.Namespace, "web", restarts(3))
	l.Remote.DeleteNow(t, "Pod", l.RemoteNS, "web")
	l.Absent(l.Remote, "Pod", l.RemoteNS, "web")
	l.Settled()
	// The remote pod is missing, but the local pod must still be shown as running.
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
	l.RunRemote("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", restarts(4))
	l.RemoteStatus("web", running(1))
	l.Present(l.Local, "Pod", l.Namespace, "web", restarts(5))
	l.Stop()
	l.Quiet("a restart after restarts", func() { l.Start() })

	// When the local pod is deleted, the ShadowPod must be deleted at once. The local pod must be removed only when
	// the provider's pod no longer exists.
	l.Remote.PatchYAML(t, "Pod", l.RemoteNS, "web", `{metadata: {finalizers: [example.com/slow]}}`)
	l.Local.Delete(t, "Pod", l.Namespace, "web")
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.Settled()
	l.Present(l.Local, "Pod", l.Namespace, "web")
	l.Remote.DeleteNow(t, "Pod", l.RemoteNS, "web")
	l.Remote.PatchYAML(t, "Pod", l.RemoteNS, "web", `{metadata: {finalizers: null}}`)
	l.Absent(l.Local, "Pod", l.Namespace, "web")
}

func restarts(n int) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error {
		containers, _, _ := unstructured.NestedSlice(o.Object, "status", "containerStatuses")
		if len(containers) != 1 {
			return fmt.Errorf("container statuses are %v", containers)
		}
		return reflectiontest.Field("restartCount", fmt.Sprint(n))(&unstructured.Unstructured{Object: containers[0].(map[string]any)})
	}
}

// TestGracePeriodsCross checks that if a pod is deleted or evicted with a shorter grace period than in its spec, the
// provider's pod gets this period and not a longer one, even if the period is shortened again later.
func TestGracePeriodsCross(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	grace := func(seconds int64) *metav1.DeleteOptions { return &metav1.DeleteOptions{GracePeriodSeconds: &seconds} }
	for name, tc := range map[string]struct {
		end  func(name string) error
		want string
	}{
		"deleted": {func(name string) error {
			return l.Local.Of("Pod", l.Namespace).Delete(t.Context(), name, *grace(7))
		}, "7"},
		"evicted": {func(name string) error {
			return l.Local.Core.CoreV1().Pods(l.Namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: l.Namespace}, DeleteOptions: grace(9)})
		}, "9"},
		"usual": {func(name string) error {
			return l.Local.Of("Pod", l.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
		}, "30"},
	} {
		l.Pod(name)
		l.RunRemoteWith(name, `{nodeName: worker, containers: [{name: web, image: "web:1"}]}`, running(0))
		l.Remote.PatchYAML(t, "Pod", l.RemoteNS, name, `{metadata: {finalizers: [example.com/slow]}}`)
		l.Present(l.Local, "Pod", l.Namespace, name, reflectiontest.Field("status.phase", "Running"))
		require.NoError(t, tc.end(name))
		l.Present(l.Remote, "Pod", l.RemoteNS, name, reflectiontest.Field("metadata.deletionGracePeriodSeconds", tc.want))
		if name == "deleted" {
			require.NoError(t, l.Local.Of("Pod", l.Namespace).Delete(t.Context(), name, *grace(2)))
			l.Present(l.Remote, "Pod", l.RemoteNS, name, reflectiontest.Field("metadata.deletionGracePeriodSeconds", "2"))
		}
		l.Remote.PatchYAML(t, "Pod", l.RemoteNS, name, `{metadata: {finalizers: null}}`)
		// This call removes the pod as a kubelet does when its containers have ended.
		l.Remote.DeleteNow(t, "Pod", l.RemoteNS, name)
		l.Absent(l.Local, "Pod", l.Namespace, name)
	}
}

// TestPodMatrix checks how a starting manager treats pods and ShadowPods that already exist: it creates missing
// ShadowPods, updates stale ones, deletes the ShadowPods of aborted or deleted pods, does not offload finished pods,
// and leaves ShadowPods of other owners unchanged.
func TestPodMatrix(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, name := range []string{"new", "stale", "taken", "done", "failed", "aborted", "ended", "others"} {
		l.Pod(name)
	}
	for name, status := range map[string]string{"done": "{phase: Succeeded}", "failed": "{phase: Failed, reason: Other}",
		"aborted": "{phase: Failed, reason: OffloadingAborted}"} {
		l.Local.PatchYAML(t, "Pod", l.Namespace, name, "{status: "+status+"}", "status")
	}
	for _, name := range []string{"stale", "failed", "aborted", "ended", "deleted-while-down"} {
		l.Remote.Create(t, l.RemoteNS, fmt.Sprintf(shadowPod, name, l.OwnedPod()+", old: label"))
	}
	l.Remote.Create(t, l.RemoteNS, fmt.Sprintf(shadowPod, "taken", "whose: theirs"))
	l.Remote.Create(t, l.RemoteNS, fmt.Sprintf(shadowPod, "others", l.Owned()+", offloading.liqo.io/nodename: another-node"))
	l.Remote.PatchYAML(t, "ShadowPod", l.RemoteNS, "ended", "{status: {phase: Failed}}", "status")
	l.Start()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "new")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "stale", reflectiontest.Field("metadata.labels/app", "stale"), reflectiontest.Field("metadata.labels/old", ""))
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "aborted")
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "deleted-while-down")
	l.Present(l.Local, "Pod", l.Namespace, "ended", reflectiontest.Field("status.phase", "Failed"), reflectiontest.Field("status.reason", "RemotePodTerminated"))
	l.Event(l.Namespace, "Pod", "taken", "Warning", "FailedReflection")
	l.Event(l.Namespace, "Pod", "others", "Warning", "FailedReflection")
	l.Settled()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "failed", reflectiontest.Field("metadata.labels/old", "label"))
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "taken", reflectiontest.Field("metadata.labels/whose", "theirs"))
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "others", reflectiontest.Field("metadata.labels/offloading.liqo.io/nodename", "another-node"))
	if l.Remote.Get(t, "ShadowPod", l.RemoteNS, "done") != nil {
		t.Error("a pod that had finished crossed")
	}
	// The pod can be removed, because nothing of it is left on the provider.
	l.Local.Delete(t, "Pod", l.Namespace, "done")
	l.Absent(l.Local, "Pod", l.Namespace, "done")
}

// TestPodOfTheSameName checks that the status of a pod never shows the termination of an earlier pod of the same
// name.
func TestPodOfTheSameName(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	l.Pod("db-0")
	first := l.Present(l.Remote, "ShadowPod", l.RemoteNS, "db-0")
	l.RunRemote("db-0", "{phase: Succeeded}")
	l.Present(l.Local, "Pod", l.Namespace, "db-0", reflectiontest.Field("status.phase", "Succeeded"))
	l.Stop()
	l.Local.DeleteNow(t, "Pod", l.Namespace, "db-0")
	l.Absent(l.Local, "Pod", l.Namespace, "db-0")
	l.Pod("db-0")
	l.Start()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "db-0", func(o *unstructured.Unstructured) error {
		if o.GetUID() == first.GetUID() {
			return fmt.Errorf("it is still the first pod's")
		}
		return nil
	})
	l.Absent(l.Remote, "Pod", l.RemoteNS, "db-0")
	l.Settled()
	l.Present(l.Local, "Pod", l.Namespace, "db-0", reflectiontest.Field("status.phase", "Pending"))
}

func TestPodOfANamespaceThatIsNotOffloaded(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *reflection.Options) { o.MapGrace = time.Millisecond })
	l.MapNamespaces(nil)
	l.Pod("waits")
	l.Pod("runs")
	l.Pod("done")
	l.Local.PatchYAML(t, "Pod", l.Namespace, "runs", "{status: "+running(0)+"}", "status")
	l.Local.PatchYAML(t, "Pod", l.Namespace, "done", "{status: {phase: Succeeded}}", "status")
	l.Start()
	l.Present(l.Local, "Pod", l.Namespace, "waits", reflectiontest.Field("status.phase", "Pending"), reflectiontest.Field("status.reason", "OffloadingBackOff"))
	l.Present(l.Local, "Pod", l.Namespace, "runs", reflectiontest.Field("status.phase", "Failed"), reflectiontest.Field("status.reason", "OffloadingAborted"))
	l.Event(l.Namespace, "Pod", "waits", "Warning", "ReflectionDisabled", "DaemonSet", "liqo.io/type=virtual-node")
	l.Settled()
	l.Present(l.Local, "Pod", l.Namespace, "done", reflectiontest.Field("status.phase", "Succeeded"))
	l.Local.Delete(t, "Pod", l.Namespace, "runs")
	l.Absent(l.Local, "Pod", l.Namespace, "runs")
	// The namespace is offloaded later, and the waiting pods must then be offloaded, too.
	l.MapNamespaces(map[string]string{l.Namespace: l.RemoteNS})
	l.RunRemote("waits", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "waits", reflectiontest.Field("status.phase", "Running"), reflectiontest.Field("status.reason", ""))
	// The namespace is no longer offloaded: running pods must fail, and nothing must be deleted on the provider.
	l.MapNamespaces(nil)
	l.Present(l.Local, "Pod", l.Namespace, "waits", reflectiontest.Field("status.phase", "Failed"), reflectiontest.Field("status.reason", "OffloadingAborted"))
	l.Settled()
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "waits")
	// The namespace is offloaded again. The old ShadowPod must be deleted.
	l.MapNamespaces(map[string]string{l.Namespace: l.RemoteNS})
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "waits")
}

// TestTheMapOfAPeerIsNotFollowed checks that the NamespaceMap of a peer that is also a consumer of this cluster is
// not used, even if it is the only map. That map is in the same namespace as the right one, and has the same label.
func TestTheMapOfAPeerIsNotFollowed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Local.Create(t, l.Namespace, service("web", ""))
	theirs := func(name string, labels map[string]any) {
		labels["liqo.io/remote-cluster-id"] = l.ID
		maps := l.Local.Dynamic.Resource(offloadingv1beta1.NamespaceMapGVR).Namespace(l.Tenant)
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceMap", "metadata": map[string]any{"name": name, "labels": labels},
			"spec": map[string]any{"desiredMapping": map[string]any{l.Namespace: l.RemoteNS}},
		}}
		object = reflectiontest.Must(maps.Create(t.Context(), object, metav1.CreateOptions{}))(t)
		object.Object["status"] = map[string]any{"currentMapping": map[string]any{l.Namespace: map[string]any{"remoteNamespace": l.RemoteNS, "phase": "Accepted"}}}
		reflectiontest.Must(maps.UpdateStatus(t.Context(), object, metav1.UpdateOptions{}))(t)
	}
	l.Local.Delete(t, "NamespaceMap", l.Tenant, l.ID)
	theirs("this-cluster", map[string]any{"liqo.io/replicated": "true", "liqo.io/replication": "false", "liqo.io/originID": l.ID})
	theirs("a-second-one", map[string]any{"liqo.io/replication": "true", "liqo.io/remoteID": l.ID})
	l.Start()
	l.Event(l.Tenant, "NamespaceMap", "a-second-one", "Warning", "only the NamespaceMap named "+l.ID)
	l.Settled()
	if running := l.Manager.Namespaces(); len(running) > 0 {
		t.Errorf("the namespaces %v are offloaded by a map of the peer", running)
	}
	l.Absent(l.Remote, "Service", l.RemoteNS, "web")
}

// TestBrokenNamespaceMap checks that a deleted or invalid NamespaceMap does not end running pods.
func TestBrokenNamespaceMap(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	l.Pod("web")
	l.RunRemote("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
	entry := func(remote string) map[string]any {
		return map[string]any{"remoteNamespace": remote, "phase": "Accepted"}
	}
	l.WriteMap(l.ID, map[string]any{l.Namespace: entry("NOT a name"), "elsewhere": entry("twice"), "elsewhere-2": entry("twice")})
	l.Event(l.Tenant, "NamespaceMap", l.ID, "Warning", "InvalidNamespaceMap", "NOT a name", "twice")
	l.Settled()
	l.Local.Create(t, l.Namespace, service("web", ""))
	l.Present(l.Remote, "Service", l.RemoteNS, "web") // reflection must continue
	l.WriteMap("a-second-one", map[string]any{})
	l.Event(l.Tenant, "NamespaceMap", "a-second-one", "Warning", "only the NamespaceMap named "+l.ID)
	l.Local.Delete(t, "NamespaceMap", l.Tenant, "a-second-one")
	l.Local.Delete(t, "NamespaceMap", l.Tenant, l.ID)
	l.Eventually(func() error {
		if len(l.Manager.Namespaces()) > 0 {
			return fmt.Errorf("the namespaces %v are extended without a map", l.Manager.Namespaces())
		}
		return nil
	})
	l.Settled()
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	l.MapNamespaces(map[string]string{l.Namespace: l.RemoteNS})
	l.RemoteStatus("web", running(2))
	l.Present(l.Local, "Pod", l.Namespace, "web", restarts(2))
}

// TestSkippedPod checks that a pod that a plugin skips waits if it was not offloaded yet, and that it fails and its
// ShadowPod is deleted if it was.
func TestSkippedPod(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	l.Pod("web")
	l.RunRemote("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
	l.Chains.Swap("Pod", host.Outgoing, func(document.Node, *host.Env) (*host.Outcome, error) {
		return &host.Outcome{Skipped: true, Skipper: "home", SkipReason: "stays on this cluster"}, nil
	})
	l.Pod("later")
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Failed"), reflectiontest.Field("status.reason", "OffloadingAborted"))
	l.Absent(l.Remote, "ShadowPod", l.RemoteNS, "web")
	l.Present(l.Local, "Pod", l.Namespace, "later", reflectiontest.Field("status.reason", "OffloadingBackOff"))
	l.Event(l.Namespace, "Pod", "later", "Warning", "ReflectionDisabled", "stays on this cluster")
}

// TestPendingIsShown checks that the phase Pending of the provider's pod is shown if it lasts, or at once if the pod
// reports a reason.
func TestPendingIsShown(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *reflection.Options) { o.SettleAfter = 500 * time.Millisecond })
	l.Start()
	l.Pod("slow")
	l.Pod("stuck")
	l.RunRemote("slow", "")
	began := time.Now()
	l.RunRemote("stuck", `{conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/3 nodes"}]}`)
	l.Present(l.Local, "Pod", l.Namespace, "stuck", reflectiontest.Field("metadata.labels/liqo.io/shadowPod", "true"), func(o *unstructured.Unstructured) error {
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		if len(conditions) == 0 {
			return fmt.Errorf("no conditions")
		}
		return reflectiontest.Field("message", "0/3 nodes")(&unstructured.Unstructured{Object: conditions[0].(map[string]any)})
	})
	l.Present(l.Local, "Pod", l.Namespace, "slow", reflectiontest.Field("metadata.labels/liqo.io/shadowPod", "true"))
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("a pod that was only just taken in was shown after %s", took)
	}
}

// TestStatusesRunNoOutgoingChain checks that the outgoing chain of a pod does not run again after a change in the
// status, but runs again after every change in an input of the ShadowPod.
func TestStatusesRunNoOutgoingChain(t *testing.T) {
	// The test is not parallel, because the virtual nodes of other tests change the plugins' context.
	l := newLab(t)
	l.ChainsForPods()
	var runs atomic.Int32
	label := func(value string) {
		l.Chains.Swap("Pod", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
			runs.Add(1)
			patch, _ := env.Context["offloadingPatch"].(map[string]any)
			class, _ := patch["runtimeClassName"].(string)
			return &host.Outcome{}, errors.Join(doc.SetString("metadata.labels.chain", value), doc.SetString("metadata.labels.class", class))
		})
	}
	label("first")
	l.Start()
	l.Pod("web")
	l.RunRemote("web", "{phase: Pending}")
	l.RemoteStatus("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
	l.Settled()
	last := 9
	// The runs are counted from the second status on, because the inputs of the ShadowPod are recorded after the
	// first status.
	statuses := func() {
		t.Helper()
		var before int32
		for n := range 4 {
			if n == 1 {
				l.Settled()
				before = runs.Load()
			}
			last++
			address := fmt.Sprintf("10.245.0.%d", last)
			l.RemoteStatus("web", strings.ReplaceAll(running(0), "10.245.0.9", address))
			l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.podIP", address))
		}
		l.Settled()
		if n := runs.Load() - before; n > 0 {
			t.Errorf("three statuses ran the outgoing chain %d times", n)
		}
	}
	statuses()
	shadow := func(label, want string) {
		t.Helper()
		l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/"+label, want))
	}
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{metadata: {labels: {app: other}}}`)
	shadow("app", "other")
	statuses()
	label("second")
	shadow("chain", "second")
	statuses()
	l.Local.PatchYAML(t, "VirtualNode", l.Tenant, l.Node, `{spec: {offloadingPatch: {runtimeClassName: milan}}}`)
	shadow("class", "milan")
	statuses()
	l.Remote.PatchYAML(t, "ShadowPod", l.RemoteNS, "web", `{metadata: {labels: {app: theirs}}}`)
	shadow("app", "other")
	statuses()
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{spec: {containers: [{name: web, image: "web:2"}]}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", func(o *unstructured.Unstructured) error {
		if text := fmt.Sprint(o.Object["spec"]); !strings.Contains(text, "web:2") {
			return errors.New(text)
		}
		return nil
	})
}

// TestStatusesOfManyPods checks that if many statuses change at the same time, the first few are written at once and
// all others together.
func TestStatusesOfManyPods(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	l := newLab(t, func(o *reflection.Options) { o.Clock = clock })
	l.ChainsForPods()
	l.Start()
	const pods, atOnce = 12, 5
	for n := range pods {
		l.Pod(fmt.Sprint("web-", n))
	}
	for n := range pods {
		l.RunRemote(fmt.Sprint("web-", n), running(0))
	}
	shown := func() (n int) {
		list, err := l.Local.Of("Pod", l.Namespace).List(l.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for i := range list.Items {
			if reflectiontest.Field("status.phase", "Running")(&list.Items[i]) == nil {
				n++
			}
		}
		return n
	}
	wait := func(want int) {
		l.Eventually(func() error {
			if n := shown(); n < want {
				return fmt.Errorf("%d of %d statuses are shown", n, want)
			}
			return nil
		})
	}
	wait(atOnce)
	l.Settled()
	require.Equal(t, atOnce, shown(), "while no time passes")
	clock.Step(time.Second)
	wait(pods)
}
