// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// note inserts a condition before the other conditions of a local pod, as a controller would.
func (l *lab) note(name string, condition map[string]any) {
	l.Helper()
	// A copy is needed, because a worker of the manager calls note while the test reads the map.
	condition = maps.Clone(condition)
	condition["lastTransitionTime"] = time.Now().UTC().Format(time.RFC3339)
	body := reflectiontest.Must(json.Marshal(jsonpatch.Patch{{Op: "add", Path: "/status/conditions/0", Value: condition}}))(l.T)
	reflectiontest.Must(l.Local.Of("Pod", l.Namespace).Patch(l.Context(), name, types.JSONPatchType, body, metav1.PatchOptions{}, "status"))(l.T)
}

// TestConditionsOfOthers checks that a condition that a local controller has written stays, and that a condition from
// the provider is shown until the provider removes it. Neither of the two conditions may cause an additional write.
func TestConditionsOfOthers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	l.Pod("web")
	l.RunRemote("web", running(0))
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
	l.Settled()
	l.Quiet("a condition", func() {
		l.note("web", map[string]any{"type": "example.com/Here", "status": "True", "message": "a <b> & \"c\" \u2028 é"})
	})
	remote := func(conditions string) string {
		return fmt.Sprintf(`{phase: Running, conditions: [{type: Ready, status: "True"}%s]}`, conditions)
	}
	l.RemoteStatus("web", remote(`, {type: example.com/There, status: "True"}`))
	l.Present(l.Local, "Pod", l.Namespace, "web", says("example.com/There", "True"), says("example.com/Here", "True"))
	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	l.RemoteStatus("web", remote(""))
	l.Present(l.Local, "Pod", l.Namespace, "web", says("example.com/There", ""), says("example.com/Here", "True"), says("Ready", "True"))
	l.Settled()
	if writes := append(l.Local.Writes(t), l.Remote.Writes(t)...); len(writes) != 4 {
		t.Errorf("three states of a pod took the writes %q, want the ShadowPod and three statuses", writes)
	}
	if events := l.Events(l.Namespace, "Pod", "web"); len(events) > 0 {
		t.Errorf("Events: %q", events)
	}
}

// TestEvictionIsRemembered checks that an evicted pod keeps the condition with the reason, because a Job may count
// its failed pods by reason. The condition must stay whether or not the provider has reported the end of the pod.
func TestEvictionIsRemembered(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	for _, name := range []string{"told", "untold"} {
		l.Pod(name)
		l.Local.PatchYAML(t, "Pod", l.Namespace, name, `{metadata: {finalizers: [example.com/counted]}}`)
		l.RunRemote(name, running(0))
		l.Remote.PatchYAML(t, "Pod", l.RemoteNS, name, `{metadata: {finalizers: [example.com/slow]}}`)
		l.Present(l.Local, "Pod", l.Namespace, name, reflectiontest.Field("status.phase", "Running"))
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: l.Namespace}}
		require.NoError(t, l.Local.Core.CoreV1().Pods(l.Namespace).EvictV1(t.Context(), eviction))
		l.Absent(l.Remote, "ShadowPod", l.RemoteNS, name)
		if name == "told" {
			l.RemoteStatus(name, `{phase: Failed, conditions: [{type: Ready, status: "False"}], containerStatuses: [{name: web, image: "web:1", imageID: x, ready: false, restartCount: 0, state: {terminated: {exitCode: 143}}}]}`)
			l.Present(l.Local, "Pod", l.Namespace, name, reflectiontest.Field("status.phase", "Failed"))
		}
		l.Remote.PatchYAML(t, "Pod", l.RemoteNS, name, `{metadata: {finalizers: null}}`)
		l.Present(l.Local, "Pod", l.Namespace, name, reflectiontest.Field("status.phase", "Failed"), says("Ready", "False"), says("DisruptionTarget", "True"))
		l.Local.PatchYAML(t, "Pod", l.Namespace, name, `{metadata: {finalizers: null}}`)
		l.Absent(l.Local, "Pod", l.Namespace, name)
	}
}

// gatedPod creates a pod with readiness gates, bound to the lab's node.
func (l *lab) gatedPod(name string, gates ...string) {
	l.Helper()
	l.Local.Create(l.T, l.Namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %s
  automountServiceAccountToken: false
  containers: [{name: web, image: "web:1"}]
  readinessGates: [{conditionType: %s}]`, name, l.Node, strings.Join(gates, "}, {conditionType: ")))
}

// TestConditionsWrittenMeanwhile checks that a status does not overwrite conditions that were written after it was
// computed: a readiness gate that a load balancer has opened, and an eviction.
func TestConditionsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	l.gatedPod("gated", "gate")
	l.Pod("plain")
	const open = `conditions: [{type: ContainersReady, status: "True"}, {type: Ready, status: "False", reason: ReadinessGatesNotReady}]`
	noted := map[string]map[string]any{
		"gated": {"type": "gate", "status": "True", "message": "a <b> & \"c\" \u2028 é"},
		"plain": {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
	}
	for name := range noted {
		l.RunRemote(name, `{phase: Running, podIP: 10.245.0.8, podIPs: [{ip: 10.245.0.8}], `+open+`}`)
		l.Present(l.Local, "Pod", l.Namespace, name, reflectiontest.Field("status.podIP", "10.245.0.8"))
	}
	l.Settled()
	before := len(l.Local.Writes(t))
	for name := range noted {
		once := sync.OnceFunc(func() { l.note(name, noted[name]) })
		l.Chains.Swap("Pod", host.Incoming, func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
			of, _ := doc.At("metadata.name")
			if ip, _ := doc.At("status.podIP"); of.Value() == name && ip.Value() == "10.245.0.9" {
				once() // this call is made between the evaluation of the pod and the write of its status
			}
			return &host.Outcome{}, nil
		})
		l.RemoteStatus(name, `{podIP: 10.245.0.9, podIPs: [{ip: 10.245.0.9}]}`)
		l.Present(l.Local, "Pod", l.Namespace, name, reflectiontest.Field("status.podIP", "10.245.0.9"), says(noted[name]["type"].(string), "True"))
		l.Settled()
		if events := l.Events(l.Namespace, "Pod", name); len(events) > 0 {
			t.Errorf("Events of %s: %q", name, events)
		}
	}
	l.Present(l.Local, "Pod", l.Namespace, "gated", says("Ready", "True"))
	if made := l.Local.Writes(t)[before:]; len(made) > 8 {
		t.Errorf("two conditions took the writes %q", made)
	}
}

// TestContainersThatMayRestart checks that the restart rules in the spec of the pod and of each container determine
// which containers may restart. All other containers must stay terminated, even if the provider recreates the pod.
func TestContainersThatMayRestart(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t))
	l.Start()
	const spec = `
  restartPolicy: Never
  initContainers: [{name: sidecar, image: "s:1", restartPolicy: Always}]
  containers:
  - {name: web, image: "web:1"}
  - {name: worker, image: "w:1", restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]}`
	l.Local.Create(t, l.Namespace, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  nodeName: %s\n  automountServiceAccountToken: false%s", l.Node, spec))
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
	l.RunRemoteWith("web", spec, status(failed, failed, failed, 0))
	l.Present(l.Local, "Pod", l.Namespace, "web", shows(terminated, terminated, terminated, 0))
	l.RemoteStatus("web", status(runs, failed, runs, 3))
	l.Present(l.Local, "Pod", l.Namespace, "web", shows(again, terminated, again, 3))
	l.Remote.DeleteNow(t, "Pod", l.RemoteNS, "web")
	l.Absent(l.Remote, "Pod", l.RemoteNS, "web")
	l.RunRemoteWith("web", spec, status(runs, runs, runs, 0))
	l.Present(l.Local, "Pod", l.Namespace, "web", shows(again, terminated, again, 4))
	l.Settled()
	if events := l.Events(l.Namespace, "Pod", "web"); len(events) > 0 {
		t.Errorf("Events: %q", events)
	}
}
