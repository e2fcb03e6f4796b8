// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
)

// started returns the status of a running pod, always with the same start time.
func started(restarts int) string {
	return strings.Replace(running(restarts), "{phase: Running,", `{phase: Running, startTime: "2026-01-01T00:00:00Z",`, 1)
}

// remake deletes the provider's pod and recreates it within the same second.
func (l *lab) remake(name, status string) {
	l.Helper()
	l.Remote.DeleteNow(l.T, "Pod", l.RemoteNS, name)
	l.Absent(l.Remote, "Pod", l.RemoteNS, name)
	l.RunRemote(name, status)
}

// TestRestartsOutliveTheProcess checks that restarts are counted when the provider recreates a pod, and that the
// count never decreases, whichever process does not run at that time, and however fast the pod is recreated.
// Recording the counts must not cause additional writes on either side.
func TestRestartsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.ChainsForPods()
	l.Start()
	l.Pod("web")
	l.Local.Create(t, l.Namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: bare}
spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: web, image: "web:1"}], tolerations: [{operator: Exists}]}`, l.Node))
	names := []string{"web", "bare"} // one pod with annotations, and one without
	shown := func(n int) {
		t.Helper()
		for _, name := range names {
			uid := l.Remote.Get(t, "Pod", l.RemoteNS, name).GetUID()
			l.Present(l.Local, "Pod", l.Namespace, name, restarts(n), func(o *unstructured.Unstructured) error {
				if note := o.GetAnnotations()[pod.RestartsAnnotation]; !strings.Contains(note, string(uid)) {
					return fmt.Errorf("the note is %q, want one about %s", note, uid)
				}
				return nil
			})
		}
	}
	for _, name := range names {
		l.RunRemote(name, started(2))
	}
	shown(2)
	l.Settled()
	if writes := append(l.Local.Writes(t), l.Remote.Writes(t)...); len(writes) != 4 {
		t.Errorf("two pods up to Running took the writes %q, want two each", writes)
	}
	for n := 3; n < 5; n++ {
		l.Stop()
		for _, name := range names {
			l.remake(name, started(0))
		}
		l.Start()
		shown(n)
		l.Settled()
	}
	if writes := l.Remote.Writes(t); len(writes) != 2 {
		t.Errorf("the provider saw the writes %q, want the two ShadowPods", writes)
	}
	for _, name := range names {
		l.Present(l.Remote, "ShadowPod", l.RemoteNS, name, reflectiontest.Field("metadata.annotations/"+pod.RestartsAnnotation, ""))
	}
	l.Stop()
	l.Quiet("a restart", func() { l.Start() })

	// For a pod from a version of Refract that did not record counts, only the status contains the count.
	l.Stop()
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{metadata: {annotations: {`+pod.RestartsAnnotation+`: null}}}`)
	l.Local.PatchYAML(t, "Pod", l.Namespace, "bare", `{metadata: {annotations: {`+pod.RestartsAnnotation+`: nonsense}}}`)
	l.Quiet("a missing note", func() { l.Start() })
	for _, name := range names {
		l.RemoteStatus(name, started(1))
	}
	shown(5)
}

// TestFirstEntryIsNoOverwrite checks that an annotation or label is not lost if another client adds it while the
// virtual kubelet writes the first annotation or label of the object.
func TestFirstEntryIsNoOverwrite(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	old := l.Local.Create(t, l.Namespace, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: bare}, spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}}`, l.Node))
	l.Local.PatchYAML(t, "Pod", l.Namespace, "bare", `{metadata: {annotations: {theirs: kept}, labels: {theirs: kept}}}`)
	for _, m := range []pod.Marks{{Restarts: "{}"}, {Offloaded: true}} {
		err := l.patchStatus(old, nil, m)
		if got, _ := failure.Classify(err); got != failure.Conflict {
			t.Errorf("%+v: %v is %s, want %s", m, err, got, failure.Conflict)
		}
	}
	l.Present(l.Local, "Pod", l.Namespace, "bare", reflectiontest.Field("metadata.annotations/theirs", "kept"), reflectiontest.Field("metadata.labels/theirs", "kept"))
}

// patchStatus writes the status of a pod as the handler of pods does.
func (l *lab) patchStatus(local *unstructured.Unstructured, status map[string]any, marks pod.Marks) error {
	patcher, ok := l.Manager.Handler(reflection.PodKind).(interface {
		PatchStatus(ctx context.Context, w *evaluation.Worker, local *unstructured.Unstructured, status map[string]any, marks pod.Marks) error
	})
	if !ok {
		l.Fatal("the handler of pods writes no statuses")
	}
	return patcher.PatchStatus(l.Context(), &evaluation.Worker{}, local, status, marks)
}
