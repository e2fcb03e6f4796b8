// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// note writes a condition in front of those of a pod here, as a controller would.
func (l *lab) note(name string, condition map[string]any) {
	l.Helper()
	condition["lastTransitionTime"] = time.Now().UTC().Format(time.RFC3339)
	body := must(json.Marshal(jsonpatch.Patch{{Op: "add", Path: "/status/conditions/0", Value: condition}}))(l.T)
	must(l.local.of("Pod", l.namespace).Patch(l.Context(), name, types.JSONPatchType, body, metav1.PatchOptions{}, "status"))(l.T)
}

// What a controller here notes on a pod stays, what one at the provider notes comes and goes, and neither costs a write.
func TestConditionsOfOthers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	l.pod("web")
	l.runRemote("web", running(0))
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"))
	l.settled()
	l.quiet("a condition", func() {
		l.note("web", map[string]any{"type": "example.com/Here", "status": "True", "message": "a <b> & \"c\" \u2028 é"})
	})
	remote := func(conditions string) string {
		return fmt.Sprintf(`{phase: Running, conditions: [{type: Ready, status: "True"}%s]}`, conditions)
	}
	l.remoteStatus("web", remote(`, {type: example.com/There, status: "True"}`))
	l.present(l.local, "Pod", l.namespace, "web", says("example.com/There", "True"), says("example.com/Here", "True"))
	l.settled()
	l.stop()
	l.quiet("a restart", func() { l.start() })
	l.remoteStatus("web", remote(""))
	l.present(l.local, "Pod", l.namespace, "web", says("example.com/There", ""), says("example.com/Here", "True"), says("Ready", "True"))
	l.settled()
	if writes := append(l.local.writes(t), l.remote.writes(t)...); len(writes) != 4 {
		t.Errorf("three states of a pod took the writes %q, want the ShadowPod and three statuses", writes)
	}
	if events := l.events(l.namespace, "Pod", "web"); len(events) > 0 {
		t.Errorf("Events: %q", events)
	}
}

// A pod is evicted here: a Job that counts its pods sees why it ended, whether or not the provider told of the end.
func TestEvictionIsRemembered(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	for _, name := range []string{"told", "untold"} {
		l.pod(name)
		l.local.patchYAML(t, "Pod", l.namespace, name, `{metadata: {finalizers: [example.com/counted]}}`)
		l.runRemote(name, running(0))
		l.remote.patchYAML(t, "Pod", l.remoteNS, name, `{metadata: {finalizers: [example.com/slow]}}`)
		l.present(l.local, "Pod", l.namespace, name, field("status.phase", "Running"))
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: l.namespace}}
		if err := l.local.core.CoreV1().Pods(l.namespace).EvictV1(t.Context(), eviction); err != nil {
			t.Fatal(err)
		}
		l.absent(l.remote, "ShadowPod", l.remoteNS, name)
		if name == "told" {
			l.remoteStatus(name, `{phase: Failed, conditions: [{type: Ready, status: "False"}], containerStatuses: [{name: web, image: "web:1", imageID: x, ready: false, restartCount: 0, state: {terminated: {exitCode: 143}}}]}`)
			l.present(l.local, "Pod", l.namespace, name, field("status.phase", "Failed"))
		}
		l.remote.patchYAML(t, "Pod", l.remoteNS, name, `{metadata: {finalizers: null}}`)
		l.present(l.local, "Pod", l.namespace, name, field("status.phase", "Failed"), says("Ready", "False"), says("DisruptionTarget", "True"))
		l.local.patchYAML(t, "Pod", l.namespace, name, `{metadata: {finalizers: null}}`)
		l.absent(l.local, "Pod", l.namespace, name)
	}
}

// A load balancer opens its gate, and a pod is evicted, while a status that knows nothing of it is on its way.
func TestConditionsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	l.local.create(t, l.namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: gated}
spec:
  nodeName: %s
  automountServiceAccountToken: false
  containers: [{name: web, image: "web:1"}]
  readinessGates: [{conditionType: gate}]`, l.node))
	l.pod("plain")
	const open = `conditions: [{type: ContainersReady, status: "True"}, {type: Ready, status: "False", reason: ReadinessGatesNotReady}]`
	noted := map[string]map[string]any{
		"gated": {"type": "gate", "status": "True", "message": "a <b> & \"c\" \u2028 é"},
		"plain": {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
	}
	for name := range noted {
		l.runRemote(name, `{phase: Running, podIP: 10.245.0.8, podIPs: [{ip: 10.245.0.8}], `+open+`}`)
		l.present(l.local, "Pod", l.namespace, name, field("status.podIP", "10.245.0.8"))
	}
	l.settled()
	before := len(l.local.writes(t))
	for name := range noted {
		once := sync.OnceFunc(func() { l.note(name, noted[name]) })
		l.chains.swap("Pod", host.Incoming, func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
			of, _ := doc.At("metadata.name")
			if ip, _ := doc.At("status.podIP"); of.Value() == name && ip.Value() == "10.245.0.9" {
				once() // after the pod was looked at, before its status is written
			}
			return &host.Outcome{}, nil
		})
		l.remoteStatus(name, `{podIP: 10.245.0.9, podIPs: [{ip: 10.245.0.9}]}`)
		l.present(l.local, "Pod", l.namespace, name, field("status.podIP", "10.245.0.9"), says(noted[name]["type"].(string), "True"))
		l.settled()
		if events := l.events(l.namespace, "Pod", name); len(events) > 0 {
			t.Errorf("Events of %s: %q", name, events)
		}
	}
	l.present(l.local, "Pod", l.namespace, "gated", says("Ready", "True"))
	if made := l.local.writes(t)[before:]; len(made) > 8 {
		t.Errorf("two conditions took the writes %q", made)
	}
}

// Which containers may run again is in the spec of the pod, of each container, and in its rules: those do, the others have
// ended also when the provider makes the pod again.
func TestContainersThatMayRestart(t *testing.T) {
	t.Parallel()
	l := newLab(t, withDefaultPlugins(t))
	l.start()
	const spec = `
  restartPolicy: Never
  initContainers: [{name: sidecar, image: "s:1", restartPolicy: Always}]
  containers:
  - {name: web, image: "web:1"}
  - {name: worker, image: "w:1", restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]}`
	l.local.create(t, l.namespace, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  nodeName: %s\n  automountServiceAccountToken: false%s", l.node, spec))
	status := func(sidecar, web, worker string, restarts int) string {
		one := func(name, state string, n int) string {
			return fmt.Sprintf(`{name: %s, image: i, imageID: x, ready: false, restartCount: %d, state: {%s}}`, name, n, state)
		}
		return fmt.Sprintf("{phase: Running, initContainerStatuses: [%s], containerStatuses: [%s, %s]}", one("sidecar", sidecar, restarts), one("web", web, 0), one("worker", worker, restarts))
	}
	const runs, failed = `running: {startedAt: "2026-01-01T00:00:00Z"}`, `terminated: {exitCode: 42}`
	shows := func(sidecar, web, worker string, restarts int) func(*unstructured.Unstructured) error {
		return func(o *unstructured.Unstructured) error {
			got := ""
			for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
				statuses, _, _ := unstructured.NestedSlice(o.Object, "status", list)
				for _, item := range statuses {
					container, _ := item.(map[string]any)
					for state := range container["state"].(map[string]any) {
						got += fmt.Sprintf("%s %s %v, ", container["name"], state, container["restartCount"])
					}
				}
			}
			if want := fmt.Sprintf("sidecar %s %d, web %s 0, worker %s %d, ", sidecar, restarts, web, worker, restarts); got != want {
				return fmt.Errorf("%s want %s", got, want)
			}
			return nil
		}
	}
	const terminated, again = "terminated", "running"
	l.runRemoteWith("web", spec, status(failed, failed, failed, 0))
	l.present(l.local, "Pod", l.namespace, "web", shows(terminated, terminated, terminated, 0))
	l.remoteStatus("web", status(runs, failed, runs, 3))
	l.present(l.local, "Pod", l.namespace, "web", shows(again, terminated, again, 3))
	l.remote.deleteNow(t, "Pod", l.remoteNS, "web")
	l.absent(l.remote, "Pod", l.remoteNS, "web")
	l.runRemoteWith("web", spec, status(runs, runs, runs, 0))
	l.present(l.local, "Pod", l.namespace, "web", shows(again, terminated, again, 4))
	l.settled()
	if events := l.events(l.namespace, "Pod", "web"); len(events) > 0 {
		t.Errorf("Events: %q", events)
	}
}
