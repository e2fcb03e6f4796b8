// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

const observedStatus = `{phase: Running, message: %[1]s, observedGeneration: %[2]d, conditions: [{type: Ready, status: "True", observedGeneration: %[2]d, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`

// TestPodsNameTheGenerationThatWasObserved checks that generations in the status of an offloaded pod refer to the
// local pod, not to its ShadowPod or to the provider's pod.
func TestPodsNameTheGenerationThatWasObserved(t *testing.T) {
	t.Parallel()
	l := newLab(t, reflectiontest.WithDefaultPlugins(t))
	l.Start()
	l.Pod("web")
	l.RunRemote("web", "")
	observes := func(marker string, generation int64) {
		t.Helper()
		l.RemoteStatus("web", fmt.Sprintf(observedStatus, marker, generation))
	}
	shows := func(marker string, own, observed int) {
		t.Helper()
		l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.message", marker), reflectiontest.Field("metadata.generation", fmt.Sprint(own)),
			reflectiontest.Field("status.observedGeneration", fmt.Sprint(observed)), func(pod *unstructured.Unstructured) error {
				conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
				return reflectiontest.Field("observedGeneration", fmt.Sprint(observed))(&unstructured.Unstructured{Object: conditions[0].(map[string]any)})
			})
	}
	image := func(s *reflectiontest.Side, namespace, image string) {
		t.Helper()
		s.PatchYAML(t, "Pod", namespace, "web", `{spec: {containers: [{name: web, image: "`+image+`", imagePullPolicy: IfNotPresent, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File}]}}`)
	}
	observes("started", 1)
	shows("started", 1, 1)

	// The provider changes its pod, while the local pod does not change. The observed generation must stay.
	image(l.Remote, l.RemoteNS, "mirror.example/web:1")
	observes("mirrored", 2)
	shows("mirrored", 1, 1)

	// A change to the local pod has reached the ShadowPod, but not the provider's pod. The new generation must not
	// count as observed.
	image(l.Local, l.Namespace, "web:2")
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.generation", "2"))
	observes("not changed yet", 2)
	shows("not changed yet", 2, 1)

	// The provider's controllers change the pod, and then its kubelet observes the change. Now the new generation
	// must count as observed.
	image(l.Remote, l.RemoteNS, "web:2")
	l.Remote.PatchYAML(t, "Pod", l.RemoteNS, "web", `{metadata: {annotations: {controllers.refract.io/shadowpod-generation: "2"}}}`)
	observes("changed", 2)
	shows("changed", 2, 1)
	observes("observed", 3)
	shows("observed", 2, 2)

	l.Settled()
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })
}
