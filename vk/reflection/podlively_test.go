// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sized is a running status with the sizes that a kubelet reports: without them the API server lets nobody resize.
const sized = `{phase: Running, podIP: 10.245.0.9, podIPs: [{ip: 10.245.0.9}], conditions: [{type: Ready, status: "True"}],
  containerStatuses: [{name: web, image: "web:1", imageID: x, ready: true, restartCount: 0, state: {running: {startedAt: "2026-01-01T00:00:00Z"}},
    resources: {requests: {cpu: 100m}}}]}`

// ofContainer looks at a field of a ShadowPod's container.
func ofContainer(list string, i int, path, want string) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "pod", list)
		container := map[string]any{}
		if len(containers) > i {
			container, _ = containers[i].(map[string]any)
		}
		return field(path, want)(&unstructured.Unstructured{Object: container})
	}
}

// kubectl debug, and a resize in place, of a pod that runs reach the provider. A pod is made without debuggers, which the API server would
// refuse, and gets them then.
func TestResizeAndDebugReachTheProvider(t *testing.T) {
	t.Parallel()
	l := newLab(t, withDefaultPlugins(t))
	l.local.create(t, l.namespace, `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeName: `+l.node+`
  automountServiceAccountToken: false
  containers: [{name: web, image: "web:1", resources: {requests: {cpu: 100m}}}]`)
	l.local.patchYAML(t, "Pod", l.namespace, "web", `{spec: {ephemeralContainers: [{name: early, image: "shell:1"}]}}`, "ephemeralcontainers")
	watcher := must(l.remote.of("ShadowPod", l.remoteNS).Watch(l.Context(), metav1.ListOptions{}))(t)
	defer watcher.Stop()
	l.start()
	made := (<-watcher.ResultChan()).Object.(*unstructured.Unstructured)
	if _, found, _ := unstructured.NestedSlice(made.Object, "spec", "pod", "ephemeralContainers"); found {
		t.Error("the ShadowPod was created with ephemeral containers")
	}
	l.present(l.remote, "ShadowPod", l.remoteNS, "web", ofContainer("containers", 0, "resources.requests.cpu", "100m"), ofContainer("ephemeralContainers", 0, "name", "early"))
	l.runRemote("web", sized)
	l.present(l.local, "Pod", l.namespace, "web", field("status.phase", "Running"))

	l.local.patchYAML(t, "Node", "", l.node, `{status: {capacity: {cpu: "4"}, allocatable: {cpu: "4"}}}`, "status") // the API server looks
	l.local.patchYAML(t, "Pod", l.namespace, "web", `{spec: {containers: [{name: web, image: "web:1", resources: {requests: {cpu: 250m}}}]}}`, "resize")
	l.present(l.remote, "ShadowPod", l.remoteNS, "web", ofContainer("containers", 0, "resources.requests.cpu", "250m"))
	l.local.patchYAML(t, "Pod", l.namespace, "web", `{spec: {ephemeralContainers: [{name: early, image: "shell:1"}, {name: debug, image: "shell:1", targetContainerName: web}]}}`, "ephemeralcontainers")
	l.present(l.remote, "ShadowPod", l.remoteNS, "web", ofContainer("ephemeralContainers", 1, "name", "debug"), ofContainer("ephemeralContainers", 1, "targetContainerName", "web"))
	l.settled()
	l.stop()
	l.quiet("a restart", func() { l.start() })
}
