// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// pod creates a pod bound to the lab's node.
func (l *lab) pod(name string) *unstructured.Unstructured {
	l.Helper()
	return l.local.create(l.T, l.namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}, annotations: {note: hello}}
spec:
  nodeName: %s
  automountServiceAccountToken: false
  containers: [{name: web, image: "web:1"}]
  tolerations: [{operator: Exists}]`, name, name, l.node))
}

// runRemote plays the provider: the pod of a ShadowPod, with a status.
func (l *lab) runRemote(name, status string) *unstructured.Unstructured {
	l.Helper()
	return l.runRemoteWith(name, `{containers: [{name: web, image: "web:1"}]}`, status)
}

// runRemoteWith is runRemote with a spec, which the API server needs to see where containers may restart.
func (l *lab) runRemoteWith(name, spec, status string) *unstructured.Unstructured {
	l.Helper()
	like := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &like); err != nil {
		l.Fatal(err)
	}
	like["automountServiceAccountToken"] = false
	shadow := l.present(l.remote, "ShadowPod", l.remoteNS, name)
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "labels": shadow.Object["metadata"].(map[string]any)["labels"],
			"annotations":     shadow.Object["metadata"].(map[string]any)["annotations"],
			"ownerReferences": []any{map[string]any{"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod", "name": name, "uid": string(shadow.GetUID()), "controller": true}}},
		"spec": like,
	}}
	var created *unstructured.Unstructured
	l.eventually(func() (err error) { // the namespace may not have its service account yet
		created, err = l.remote.of("Pod", l.remoteNS).Create(l.Context(), pod, metav1.CreateOptions{})
		return err
	})
	if status != "" {
		l.remoteStatus(name, status)
	}
	return created
}

func (l *lab) remoteStatus(name, status string) {
	l.Helper()
	l.remote.patchYAML(l.T, "Pod", l.remoteNS, name, "{status: "+status+"}", "status")
}

const (
	runningStatus = `{phase: Running, podIP: 10.245.0.9, podIPs: [{ip: 10.245.0.9}], conditions: [{type: Ready, status: "True"}],
  containerStatuses: [{name: web, image: "web:1", imageID: x, ready: true, restartCount: %d, state: {running: {startedAt: "2026-01-01T00:00:00Z"}}}]}`
	shadowPod = `{apiVersion: offloading.liqo.io/v1beta1, kind: ShadowPod, metadata: {name: %s, labels: {%s}}, spec: {pod: {containers: [{name: web, image: "web:1"}]}}}`
)

func running(restarts int) string { return fmt.Sprintf(runningStatus, restarts) }

func (l *lab) ownedPod() string { return l.owned() + ", offloading.liqo.io/nodename: " + l.node }

// chainsForPods sets the node IP, adds restarts, and obeys remoteUnavailable, as the default plugin does.
func (l *lab) chainsForPods() {
	l.chains.swap("Pod", host.Incoming, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
		if err := doc.SetString("status.hostIP", env.Context["nodeIP"].(string)); err != nil {
			return nil, err
		}
		if _, err := doc.Remove("status.hostIPs"); err != nil {
			return nil, err
		}
		extra, _ := env.Context["extraRestarts"].(map[string]any)
		if n, ok := extra["web"].(int64); ok {
			count, _ := doc.At("status.containerStatuses[0].restartCount")
			now, _ := count.Int()
			if err := doc.SetInt("status.containerStatuses[0].restartCount", now+n); err != nil {
				return nil, err
			}
		}
		if env.Context["remoteUnavailable"] == true {
			return &host.Outcome{}, doc.SetString("status.conditions[0].status", "False")
		}
		return &host.Outcome{}, nil
	})
}

func TestPodLife(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.chainsForPods()
	l.start()
	pod := l.pod("web")
	shadow := l.present(l.remote, "ShadowPod", l.remoteNS, "web", field("metadata.labels/app", "web"), field("metadata.annotations/note", "hello"),
		field("metadata.labels/offloading.liqo.io/nodename", l.node), field("metadata.annotations/plugins.refract.io/origin-uid", string(pod.GetUID())))
	if containers, _, _ := unstructured.NestedSlice(shadow.Object, "spec", "pod", "containers"); len(containers) != 1 {
		t.Errorf("the ShadowPod has the containers %v", containers)
	}
	l.runRemote("web", running(0))
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"), field("status.podIP", "10.245.0.9"), field("status.hostIP", "10.9.8.7"),
		field("metadata.labels/liqo.io/shadowPod", "true"))
	l.settled()
	if writes := append(l.local.writes(t), l.remote.writes(t)...); len(writes) != 2 {
		t.Errorf("a pod up to Running took the writes %q, want two: the ShadowPod and the status", writes)
	}
	if events := l.events(l.namespace, "Pod", "web"); len(events) > 0 {
		t.Errorf("a pod without trouble has the Events %q", events)
	}
	l.stop()
	l.quiet("a restart", func() { l.start() })

	// Metadata and what may change of the spec follow; the rest is settled.
	l.chains.swap("Pod", host.Outgoing, func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
		return &host.Outcome{}, doc.SetString("spec.priorityClassName", "none of our business now")
	})
	l.local.patchYAML(t, "Pod", l.namespace, "web", `{metadata: {labels: {tier: front}}}`)
	l.present(l.remote, "ShadowPod", l.remoteNS, "web", field("metadata.labels/tier", "front"), field("spec.pod.priorityClassName", ""))
	l.local.patchYAML(t, "Pod", l.namespace, "web", `{spec: {containers: [{name: web, image: "web:2", imagePullPolicy: IfNotPresent, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File}]}}`)
	l.present(l.remote, "ShadowPod", l.remoteNS, "web", func(o *unstructured.Unstructured) error {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "pod", "containers")
		return field("image", "web:2")(&unstructured.Unstructured{Object: containers[0].(map[string]any)})
	})
	// The node is not ready: not ready either, and the ShadowPod is left alone.
	l.local.patchYAML(t, "Pod", l.namespace, "web", `{metadata: {labels: {liqo.io/remote-unavailable: "true", tier: back}}}`)
	l.present(l.local, "Pod", l.namespace, "web", field("status.conditions", "[map[lastProbeTime:<nil> lastTransitionTime:<nil> status:False type:Ready]]"))
	l.settled()
	l.present(l.remote, "ShadowPod", l.remoteNS, "web", field("metadata.labels/tier", "front"))
	l.local.patchYAML(t, "Pod", l.namespace, "web", `{metadata: {labels: {liqo.io/remote-unavailable: null}}}`)
	l.present(l.remote, "ShadowPod", l.remoteNS, "web", field("metadata.labels/tier", "back"), field("metadata.labels/liqo.io/shadowPod", ""))

	// The provider's pod is lost and made again: restarts do not go back.
	l.remoteStatus("web", running(3))
	l.present(l.local, "Pod", l.namespace, "web", restarts(3))
	l.remote.deleteNow(t, "Pod", l.remoteNS, "web")
	l.absent(l.remote, "Pod", l.remoteNS, "web")
	l.settled()
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running")) // nothing is concluded from its absence
	l.runRemote("web", running(0))
	l.present(l.local, "Pod", l.namespace, "web", restarts(4))
	l.remoteStatus("web", running(1))
	l.present(l.local, "Pod", l.namespace, "web", restarts(5))
	l.stop()
	l.quiet("a restart after restarts", func() { l.start() })

	// It is deleted here: the ShadowPod goes at once, the pod when the provider's is gone.
	l.remote.patchYAML(t, "Pod", l.remoteNS, "web", `{metadata: {finalizers: [example.com/slow]}}`)
	l.local.delete(t, "Pod", l.namespace, "web")
	l.absent(l.remote, "ShadowPod", l.remoteNS, "web")
	l.settled()
	l.present(l.local, "Pod", l.namespace, "web")
	l.remote.deleteNow(t, "Pod", l.remoteNS, "web")
	l.remote.patchYAML(t, "Pod", l.remoteNS, "web", `{metadata: {finalizers: null}}`)
	l.absent(l.local, "Pod", l.namespace, "web")
}

func restarts(n int) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error {
		containers, _, _ := unstructured.NestedSlice(o.Object, "status", "containerStatuses")
		if len(containers) != 1 {
			return fmt.Errorf("container statuses are %v", containers)
		}
		return field("restartCount", fmt.Sprint(n))(&unstructured.Unstructured{Object: containers[0].(map[string]any)})
	}
}

func (s *side) deleteNow(t *testing.T, kind, namespace, name string) {
	t.Helper()
	now := int64(0)
	if err := s.of(kind, namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
}

// A pod that is deleted, or evicted, with less time than its spec says gets no more at the provider; and again when it is
// shortened further.
func TestGracePeriodsCross(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	grace := func(seconds int64) *metav1.DeleteOptions { return &metav1.DeleteOptions{GracePeriodSeconds: &seconds} }
	for name, tc := range map[string]struct {
		end  func(name string) error
		want string
	}{
		"deleted": {func(name string) error {
			return l.local.of("Pod", l.namespace).Delete(t.Context(), name, *grace(7))
		}, "7"},
		"evicted": {func(name string) error {
			return l.local.core.CoreV1().Pods(l.namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: l.namespace}, DeleteOptions: grace(9)})
		}, "9"},
		"usual": {func(name string) error {
			return l.local.of("Pod", l.namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
		}, "30"},
	} {
		l.pod(name)
		l.runRemoteWith(name, `{nodeName: worker, containers: [{name: web, image: "web:1"}]}`, running(0))
		l.remote.patchYAML(t, "Pod", l.remoteNS, name, `{metadata: {finalizers: [example.com/slow]}}`)
		l.present(l.local, "Pod", l.namespace, name, field("status.phase", "Running"))
		if err := tc.end(name); err != nil {
			t.Fatal(err)
		}
		l.present(l.remote, "Pod", l.remoteNS, name, field("metadata.deletionGracePeriodSeconds", tc.want))
		if name == "deleted" {
			if err := l.local.of("Pod", l.namespace).Delete(t.Context(), name, *grace(2)); err != nil {
				t.Fatal(err)
			}
			l.present(l.remote, "Pod", l.remoteNS, name, field("metadata.deletionGracePeriodSeconds", "2"))
		}
		l.remote.patchYAML(t, "Pod", l.remoteNS, name, `{metadata: {finalizers: null}}`)
		l.remote.deleteNow(t, "Pod", l.remoteNS, name) // as its kubelet does
		l.absent(l.local, "Pod", l.namespace, name)
	}
}

// What is there before the manager comes.
func TestPodMatrix(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, name := range []string{"new", "stale", "taken", "done", "failed", "aborted", "ended", "others"} {
		l.pod(name)
	}
	for name, status := range map[string]string{"done": "{phase: Succeeded}", "failed": "{phase: Failed, reason: Other}",
		"aborted": "{phase: Failed, reason: OffloadingAborted}"} {
		l.local.patchYAML(t, "Pod", l.namespace, name, "{status: "+status+"}", "status")
	}
	for _, name := range []string{"stale", "failed", "aborted", "ended", "deleted-while-down"} {
		l.remote.create(t, l.remoteNS, fmt.Sprintf(shadowPod, name, l.ownedPod()+", old: label"))
	}
	l.remote.create(t, l.remoteNS, fmt.Sprintf(shadowPod, "taken", "whose: theirs"))
	l.remote.create(t, l.remoteNS, fmt.Sprintf(shadowPod, "others", l.owned()+", offloading.liqo.io/nodename: another-node"))
	l.remote.patchYAML(t, "ShadowPod", l.remoteNS, "ended", "{status: {phase: Failed}}", "status")
	l.start()
	l.present(l.remote, "ShadowPod", l.remoteNS, "new")
	l.present(l.remote, "ShadowPod", l.remoteNS, "stale", field("metadata.labels/app", "stale"), field("metadata.labels/old", ""))
	l.absent(l.remote, "ShadowPod", l.remoteNS, "aborted")
	l.absent(l.remote, "ShadowPod", l.remoteNS, "deleted-while-down")
	l.present(l.local, "Pod", l.namespace, "ended", field("status.phase", "Failed"), field("status.reason", "RemotePodTerminated"))
	l.event(l.namespace, "Pod", "taken", "Warning", "FailedReflection")
	l.event(l.namespace, "Pod", "others", "Warning", "FailedReflection")
	l.settled()
	l.present(l.remote, "ShadowPod", l.remoteNS, "failed", field("metadata.labels/old", "label"))
	l.present(l.remote, "ShadowPod", l.remoteNS, "taken", field("metadata.labels/whose", "theirs"))
	l.present(l.remote, "ShadowPod", l.remoteNS, "others", field("metadata.labels/offloading.liqo.io/nodename", "another-node"))
	if l.remote.get(t, "ShadowPod", l.remoteNS, "done") != nil {
		t.Error("a pod that had finished crossed")
	}
	l.local.delete(t, "Pod", l.namespace, "done") // nothing of it anywhere: it goes
	l.absent(l.local, "Pod", l.namespace, "done")
}

// A pod that came later under the same name is not shown what became of the first.
func TestPodOfTheSameName(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	l.pod("db-0")
	first := l.present(l.remote, "ShadowPod", l.remoteNS, "db-0")
	l.runRemote("db-0", "{phase: Succeeded}")
	l.present(l.local, "Pod", l.namespace, "db-0", field("status.phase", "Succeeded"))
	l.stop()
	l.local.deleteNow(t, "Pod", l.namespace, "db-0")
	l.absent(l.local, "Pod", l.namespace, "db-0")
	l.pod("db-0")
	l.start()
	l.present(l.remote, "ShadowPod", l.remoteNS, "db-0", func(o *unstructured.Unstructured) error {
		if o.GetUID() == first.GetUID() {
			return fmt.Errorf("it is still the first pod's")
		}
		return nil
	})
	l.absent(l.remote, "Pod", l.remoteNS, "db-0")
	l.settled()
	l.present(l.local, "Pod", l.namespace, "db-0", field("status.phase", "Pending"))
}

func TestPodOfANamespaceThatIsNotExtended(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *Options) { o.MapGrace = time.Millisecond })
	l.mapNamespaces(nil)
	l.pod("waits")
	l.pod("runs")
	l.pod("done")
	l.local.patchYAML(t, "Pod", l.namespace, "runs", "{status: "+running(0)+"}", "status")
	l.local.patchYAML(t, "Pod", l.namespace, "done", "{status: {phase: Succeeded}}", "status")
	l.start()
	l.present(l.local, "Pod", l.namespace, "waits", field("status.phase", "Pending"), field("status.reason", "OffloadingBackOff"))
	l.present(l.local, "Pod", l.namespace, "runs", field("status.phase", "Failed"), field("status.reason", "OffloadingAborted"))
	l.event(l.namespace, "Pod", "waits", "Warning", "ReflectionDisabled", "DaemonSet", "liqo.io/type=virtual-node")
	l.settled()
	l.present(l.local, "Pod", l.namespace, "done", field("status.phase", "Succeeded"))
	l.local.delete(t, "Pod", l.namespace, "runs")
	l.absent(l.local, "Pod", l.namespace, "runs")
	// The namespace is extended after all.
	l.mapNamespaces(map[string]string{l.namespace: l.remoteNS})
	l.runRemote("waits", running(0))
	l.present(l.local, "Pod", l.namespace, "waits", field("status.phase", "Running"), field("status.reason", ""))
	// And taken back: what ran is over, and nothing was deleted over there.
	l.mapNamespaces(nil)
	l.present(l.local, "Pod", l.namespace, "waits", field("status.phase", "Failed"), field("status.reason", "OffloadingAborted"))
	l.settled()
	l.present(l.remote, "ShadowPod", l.remoteNS, "waits")
	// And extended again: the leftover goes.
	l.mapNamespaces(map[string]string{l.namespace: l.remoteNS})
	l.absent(l.remote, "ShadowPod", l.remoteNS, "waits")
}

// A map that is gone or makes no sense is no reason to end what runs.
func TestBrokenNamespaceMap(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	l.pod("web")
	l.runRemote("web", running(0))
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"))
	entry := func(remote string) map[string]any {
		return map[string]any{"remoteNamespace": remote, "phase": "Accepted"}
	}
	l.writeMap(l.id, map[string]any{l.namespace: entry("NOT a name"), "elsewhere": entry("twice"), "elsewhere-2": entry("twice")})
	l.event(l.tenant, "NamespaceMap", l.id, "Warning", "InvalidNamespaceMap", "NOT a name", "twice")
	l.settled()
	l.local.create(t, l.namespace, service("web", ""))
	l.present(l.remote, "Service", l.remoteNS, "web") // it goes on
	l.writeMap("a-second-one", map[string]any{})
	l.event(l.tenant, "NamespaceMap", "a-second-one", "Warning", "2 NamespaceMaps")
	l.local.delete(t, "NamespaceMap", l.tenant, "a-second-one")
	l.local.delete(t, "NamespaceMap", l.tenant, l.id)
	l.eventually(func() error {
		if len(l.manager.Namespaces()) > 0 {
			return fmt.Errorf("the namespaces %v are extended without a map", l.manager.Namespaces())
		}
		return nil
	})
	l.settled()
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"))
	l.present(l.remote, "ShadowPod", l.remoteNS, "web")
	l.present(l.remote, "Service", l.remoteNS, "web")
	l.mapNamespaces(map[string]string{l.namespace: l.remoteNS})
	l.remoteStatus("web", running(2))
	l.present(l.local, "Pod", l.namespace, "web", restarts(2))
}

// A plugin decides that a pod stays: one that has not begun waits, one that has is over, and its copy goes.
func TestSkippedPod(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	l.pod("web")
	l.runRemote("web", running(0))
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"))
	l.chains.swap("Pod", host.Outgoing, func(document.Node, *host.Env) (*host.Outcome, error) {
		return &host.Outcome{Skipped: true, Skipper: "home", SkipReason: "stays at home"}, nil
	})
	l.pod("later")
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Failed"), field("status.reason", "OffloadingAborted"))
	l.absent(l.remote, "ShadowPod", l.remoteNS, "web")
	l.present(l.local, "Pod", l.namespace, "later", field("status.reason", "OffloadingBackOff"))
	l.event(l.namespace, "Pod", "later", "Warning", "ReflectionDisabled", "stays at home")
}

// A Pending pod of the provider is shown when it stays so, or says why at once.
func TestPendingIsShown(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *Options) { o.SettleAfter = 500 * time.Millisecond })
	l.start()
	l.pod("slow")
	l.pod("stuck")
	l.runRemote("slow", "")
	began := time.Now()
	l.runRemote("stuck", `{conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/3 nodes"}]}`)
	l.present(l.local, "Pod", l.namespace, "stuck", field("metadata.labels/liqo.io/shadowPod", "true"), func(o *unstructured.Unstructured) error {
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		if len(conditions) == 0 {
			return fmt.Errorf("no conditions")
		}
		return field("message", "0/3 nodes")(&unstructured.Unstructured{Object: conditions[0].(map[string]any)})
	})
	l.present(l.local, "Pod", l.namespace, "slow", field("metadata.labels/liqo.io/shadowPod", "true"))
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("a pod that was only just taken in was shown after %s", took)
	}
}

// A status that comes back is no reason to mutate the pod once more; whatever its ShadowPod depends on is.
func TestStatusesRunNoOutgoingChain(t *testing.T) {
	// Not parallel: the virtual nodes of other tests are something else that plugins are told.
	l := newLab(t)
	l.chainsForPods()
	var runs atomic.Int32
	label := func(value string) {
		l.chains.swap("Pod", host.Outgoing, func(doc document.Node, env *host.Env) (*host.Outcome, error) {
			runs.Add(1)
			patch, _ := env.Context["offloadingPatch"].(map[string]any)
			class, _ := patch["runtimeClassName"].(string)
			return &host.Outcome{}, errors.Join(doc.SetString("metadata.labels.chain", value), doc.SetString("metadata.labels.class", class))
		})
	}
	label("first")
	l.start()
	l.pod("web")
	l.runRemote("web", "{phase: Pending}")
	l.remoteStatus("web", running(0))
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"))
	l.settled()
	last := 9
	statuses := func() { // what the ShadowPod is right for is known after the first
		t.Helper()
		var before int32
		for n := range 4 {
			if n == 1 {
				l.settled()
				before = runs.Load()
			}
			last++
			address := fmt.Sprintf("10.245.0.%d", last)
			l.remoteStatus("web", strings.ReplaceAll(running(0), "10.245.0.9", address))
			l.present(l.local, "Pod", l.namespace, "web", field("status.podIP", address))
		}
		l.settled()
		if n := runs.Load() - before; n > 0 {
			t.Errorf("three statuses ran the outgoing chain %d times", n)
		}
	}
	statuses()
	shadow := func(label, want string) {
		t.Helper()
		l.present(l.remote, "ShadowPod", l.remoteNS, "web", field("metadata.labels/"+label, want))
	}
	l.local.patchYAML(t, "Pod", l.namespace, "web", `{metadata: {labels: {app: other}}}`)
	shadow("app", "other")
	statuses()
	label("second")
	shadow("chain", "second")
	statuses()
	l.local.patchYAML(t, "VirtualNode", l.tenant, l.node, `{spec: {offloadingPatch: {runtimeClassName: milan}}}`)
	shadow("class", "milan")
	statuses()
	l.remote.patchYAML(t, "ShadowPod", l.remoteNS, "web", `{metadata: {labels: {app: theirs}}}`)
	shadow("app", "other")
	statuses()
	l.local.patchYAML(t, "Pod", l.namespace, "web", `{spec: {containers: [{name: web, image: "web:2"}]}}`)
	l.present(l.remote, "ShadowPod", l.remoteNS, "web", func(o *unstructured.Unstructured) error {
		if text := fmt.Sprint(o.Object["spec"]); !strings.Contains(text, "web:2") {
			return errors.New(text)
		}
		return nil
	})
}
