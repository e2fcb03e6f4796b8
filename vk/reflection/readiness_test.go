// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
)

// says checks the status of a condition, "" for none.
func says(kind, status string) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error {
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		got := ""
		for _, item := range conditions {
			if condition, _ := item.(map[string]any); condition["type"] == kind {
				got = fmt.Sprint(condition["status"])
			}
		}
		if got != status {
			return fmt.Errorf("condition %s is %q, want %q", kind, got, status)
		}
		return nil
	}
}

// A load balancer here opens the readiness gate of a pod over there: its word stays, and the pod becomes ready. One at the
// provider is followed. None of that crosses, or costs a write of its own.
func TestReadinessGates(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	l.local.create(t, l.namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {plugins.refract.io/remote-readiness-gates: "there, elsewhere"}}
spec:
  nodeName: %s
  automountServiceAccountToken: false
  containers: [{name: web, image: "web:1"}]
  readinessGates: [{conditionType: here}, {conditionType: there}]`, l.node))
	remote := func(ready, there string) string {
		return fmt.Sprintf(`{phase: Running, conditions: [{type: ContainersReady, status: "True"}, {type: Ready, status: %q, reason: %q}, {type: there, status: %q}]}`,
			ready, map[string]string{"False": "ReadinessGatesNotReady"}[ready], there)
	}
	l.runRemote("web", remote("False", "False"))
	l.present(l.local, "Pod", l.namespace, "web", says("there", "False"), says("Ready", "False"))
	here := `[{"op": "add", "path": "/status/conditions/-", "value": {"type": "here", "status": "True"}}]`
	must(l.local.of("Pod", l.namespace).Patch(t.Context(), "web", types.JSONPatchType, []byte(here), metav1.PatchOptions{}, "status"))(t)
	l.settled()
	l.present(l.local, "Pod", l.namespace, "web", says("here", "True"), says("Ready", "False"))
	l.remoteStatus("web", remote("False", "True"))
	l.present(l.local, "Pod", l.namespace, "web", says("here", "True"), says("there", "True"), says("Ready", "True"))
	l.settled()
	l.stop()
	l.quiet("a restart", func() { l.start() })
	l.remoteStatus("web", remote("False", "False")) // followed: it was never ours
	l.present(l.local, "Pod", l.namespace, "web", says("here", "True"), says("there", "False"), says("Ready", "False"))
	l.settled()
	if writes := l.remote.writes(t); len(writes) != 1 {
		t.Errorf("the provider saw the writes %q, want the ShadowPod", writes)
	}
	l.present(l.remote, "ShadowPod", l.remoteNS, "web", field("metadata.annotations/"+pod.GatesAnnotation, ""), field("metadata.annotations/"+pod.RemoteGatesAnnotation, ""))
}

// A provider opens a gate about which nobody asked it: the pod is not ready by that, before somebody here says so.
func TestAProviderOpensNoGatesByItself(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	l.local.create(t, l.namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeName: %s
  automountServiceAccountToken: false
  containers: [{name: web, image: "web:1"}]
  readinessGates: [{conditionType: checked}]`, l.node))
	l.runRemote("web", `{phase: Running, conditions: [{type: ContainersReady, status: "True"}, {type: Ready, status: "True"}, {type: checked, status: "True"}]}`)
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"), says("checked", ""), says("Ready", "False"), says("ContainersReady", "True"))
	l.settled()
	l.note("web", map[string]any{"type": "checked", "status": "True"})
	l.present(l.local, "Pod", l.namespace, "web", says("checked", "True"), says("Ready", "True"))
	l.settled()
	l.stop()
	l.quiet("a restart", func() { l.start() })
}
