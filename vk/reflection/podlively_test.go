// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"testing"

	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sized is the status of a running pod with the resources that a kubelet reports. Without them, the API server
// rejects a resize.
const sized = `{phase: Running, podIP: 10.245.0.9, podIPs: [{ip: 10.245.0.9}], conditions: [{type: Ready, status: "True"}],
  containerStatuses: [{name: web, image: "web:1", imageID: x, ready: true, restartCount: 0, state: {running: {startedAt: "2026-01-01T00:00:00Z"}},
    resources: {requests: {cpu: 100m}}}]}`

// ofContainer returns a check that a field of a container in a ShadowPod has the value want.
func ofContainer(list string, i int, path, want string) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "pod", list)
		container := map[string]any{}
		if len(containers) > i {
			container, _ = containers[i].(map[string]any)
		}
		return reflectiontest.Field(path, want)(&unstructured.Unstructured{Object: container})
	}
}

// TestResizeAndDebugReachTheProvider checks that kubectl debug and an in-place resize of a running pod reach the
// provider. A ShadowPod is created without ephemeral containers, because the API server would reject them, and gets
// them in an update.
func TestResizeAndDebugReachTheProvider(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t))
	l.Local.Create(t, l.Namespace, `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeName: `+l.Node+`
  automountServiceAccountToken: false
  containers: [{name: web, image: "web:1", resources: {requests: {cpu: 100m}}}]`)
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{spec: {ephemeralContainers: [{name: early, image: "shell:1"}]}}`, "ephemeralcontainers")
	shadows := l.Remote.Of("ShadowPod", l.RemoteNS)
	before := reflectiontest.Must(shadows.List(l.Context(), metav1.ListOptions{}))(t)
	// The watch must start at this version. A watch without a version could begin with a later state of the ShadowPod.
	watcher := reflectiontest.Must(shadows.Watch(l.Context(), metav1.ListOptions{ResourceVersion: before.GetResourceVersion()}))(t)
	defer watcher.Stop()
	l.Start()
	made := (<-watcher.ResultChan()).Object.(*unstructured.Unstructured)
	if _, found, _ := unstructured.NestedSlice(made.Object, "spec", "pod", "ephemeralContainers"); found {
		t.Error("the ShadowPod was created with ephemeral containers")
	}
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", ofContainer("containers", 0, "resources.requests.cpu", "100m"), ofContainer("ephemeralContainers", 0, "name", "early"))
	l.RunRemote("web", sized)
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))

	// The node needs a capacity, because the API server compares a resize with it.
	l.Local.PatchYAML(t, "Node", "", l.Node, `{status: {capacity: {cpu: "4"}, allocatable: {cpu: "4"}}}`, "status")
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{spec: {containers: [{name: web, image: "web:1", resources: {requests: {cpu: 250m}}}]}}`, "resize")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", ofContainer("containers", 0, "resources.requests.cpu", "250m"))
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{spec: {ephemeralContainers: [{name: early, image: "shell:1"}, {name: debug, image: "shell:1", targetContainerName: web}]}}`, "ephemeralcontainers")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", ofContainer("ephemeralContainers", 1, "name", "debug"), ofContainer("ephemeralContainers", 1, "targetContainerName", "web"))
	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
}
