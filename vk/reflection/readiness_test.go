// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
)

// says returns a check that a condition has the given status. The status "" means that the condition must be missing.
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

// TestReadinessGates checks that an offloaded pod becomes ready when a load balancer of this cluster has opened its
// readiness gate, and that this gate keeps its status. A gate of the provider must have the status that the provider
// reports. Gates must neither be reflected to the provider nor cause additional writes.
func TestReadinessGates(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {plugins.refract.io/remote-readiness-gates: "there, elsewhere"}}
spec:
  nodeName: %s
  automountServiceAccountToken: false
  containers: [{name: web, image: "web:1"}]
  readinessGates: [{conditionType: here}, {conditionType: there}]`, l.Node))
	remote := func(ready, there string) string {
		return fmt.Sprintf(`{phase: Running, conditions: [{type: ContainersReady, status: "True"}, {type: Ready, status: %q, reason: %q}, {type: there, status: %q}]}`,
			ready, map[string]string{"False": "ReadinessGatesNotReady"}[ready], there)
	}
	l.RunRemote("web", remote("False", "False"))
	l.Present(l.Local, "Pod", l.Namespace, "web", says("there", "False"), says("Ready", "False"))
	here := `[{"op": "add", "path": "/status/conditions/-", "value": {"type": "here", "status": "True"}}]`
	reflectiontest.Must(l.Local.Of("Pod", l.Namespace).Patch(t.Context(), "web", types.JSONPatchType, []byte(here), metav1.PatchOptions{}, "status"))(t)
	l.Settled()
	l.Present(l.Local, "Pod", l.Namespace, "web", says("here", "True"), says("Ready", "False"))
	l.RemoteStatus("web", remote("False", "True"))
	l.Present(l.Local, "Pod", l.Namespace, "web", says("here", "True"), says("there", "True"), says("Ready", "True"))
	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
	// The status of this gate must change, because it is a gate of the provider.
	l.RemoteStatus("web", remote("False", "False"))
	l.Present(l.Local, "Pod", l.Namespace, "web", says("here", "True"), says("there", "False"), says("Ready", "False"))
	l.Settled()
	if writes := l.Remote.Writes(t); len(writes) != 1 {
		t.Errorf("the provider saw the writes %q, want the ShadowPod", writes)
	}
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.annotations/"+pod.GatesAnnotation, ""), reflectiontest.Field("metadata.annotations/"+pod.RemoteGatesAnnotation, ""))
}

// TestAProviderOpensNoGatesByItself checks that a pod stays unready if the provider opens one of its readiness gates.
// The gate must be opened in this cluster.
func TestAProviderOpensNoGatesByItself(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	l.gatedPod("web", "checked")
	l.RunRemote("web", `{phase: Running, conditions: [{type: ContainersReady, status: "True"}, {type: Ready, status: "True"}, {type: checked, status: "True"}]}`)
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), says("checked", ""), says("Ready", "False"), says("ContainersReady", "True"))
	l.Settled()
	l.note("web", map[string]any{"type": "checked", "status": "True"})
	l.Present(l.Local, "Pod", l.Namespace, "web", says("checked", "True"), says("Ready", "True"))
	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
}
