// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestSidecarsOfTheProviderAreNotShown checks that the statuses of sidecars that the provider injects are omitted,
// because kubectl counts ready statuses and would show READY 2/1. The condition ContainersReady must still cover all
// containers of the provider's pod.
func TestSidecarsOfTheProviderAreNotShown(t *testing.T) {
	t.Parallel()
	l := newLab(t).Start()
	l.Pod("web")
	const state = `ready: true, restartCount: 0, image: "x", imageID: x, state: {running: {startedAt: "2026-01-01T00:00:01Z"}}`
	l.RunRemoteWith("web", `{initContainers: [{name: proxy, image: x, restartPolicy: Always}], containers: [{name: mesh, image: x}, {name: web, image: "web:1"}]}`,
		`{phase: Running, startTime: "2026-01-01T00:00:00Z", conditions: [{type: ContainersReady, status: "False", message: "containers with unready status: [mesh]"}],
  initContainerStatuses: [{name: proxy, `+state+`}], containerStatuses: [{name: mesh, `+state+`}, {name: web, `+state+`}]}`)
	l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"), statusesOf("web"), hasCondition("ContainersReady", "False"))
	l.RemoteStatus("web", `{conditions: [{type: ContainersReady, status: "True"}]}`)
	l.Present(l.Local, "Pod", l.Namespace, "web", statusesOf("web"), hasCondition("ContainersReady", "True"))
}

// TestSidecarThatWasShownIsRemoved checks that the status of a terminated sidecar is removed if an earlier version of
// the virtual kubelet has written it.
func TestSidecarThatWasShownIsRemoved(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: job}
spec: {nodeName: %s, automountServiceAccountToken: false, restartPolicy: Never, containers: [{name: web, image: "web:1"}], tolerations: [{operator: Exists}]}`, l.Node))
	ended := func(name string, code int) string {
		return fmt.Sprintf(`{name: %s, ready: false, restartCount: 0, image: x, imageID: x, state: {terminated: {exitCode: %d}}}`, name, code)
	}
	l.Local.PatchYAML(t, "Pod", l.Namespace, "job", `{status: {phase: Running, containerStatuses: [`+ended("mesh", 0)+`]}}`, "status")
	l.Start()
	l.RunRemoteWith("job", `{restartPolicy: Never, containers: [{name: mesh, image: x}, {name: web, image: "web:1"}]}`,
		`{phase: Failed, containerStatuses: [`+ended("mesh", 0)+`, `+ended("web", 3)+`]}`)
	l.Present(l.Local, "Pod", l.Namespace, "job", reflectiontest.Field("status.phase", "Failed"), statusesOf("web"))
}

// statusesOf returns a check that the pod has statuses of exactly these containers, and none of init containers.
func statusesOf(want ...string) func(*unstructured.Unstructured) error {
	return func(pod *unstructured.Unstructured) error {
		var names []string
		for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
			items, _, _ := unstructured.NestedSlice(pod.Object, "status", list)
			for _, item := range items {
				entry, _ := item.(map[string]any)
				names = append(names, fmt.Sprint(entry["name"]))
			}
		}
		if fmt.Sprint(names) != fmt.Sprint(want) {
			return fmt.Errorf("the pod has the statuses of %q, want those of %q", names, want)
		}
		return nil
	}
}

func hasCondition(kind, want string) func(*unstructured.Unstructured) error {
	return func(pod *unstructured.Unstructured) error {
		conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
		for _, item := range conditions {
			if condition, _ := item.(map[string]any); condition["type"] == kind && condition["status"] == want {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %v, want %s %s", conditions, kind, want)
	}
}
