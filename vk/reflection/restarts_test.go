// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/pod"
)

// started is running, since a second that is always the same.
func started(restarts int) string {
	return strings.Replace(running(restarts), "{phase: Running,", `{phase: Running, startTime: "2026-01-01T00:00:00Z",`, 1)
}

// remake lets the provider lose a pod and make it again, within the second.
func (l *lab) remake(name, status string) {
	l.Helper()
	l.remote.deleteNow(l.T, "Pod", l.remoteNS, name)
	l.absent(l.remote, "Pod", l.remoteNS, name)
	l.runRemote(name, status)
}

// Whoever is down while the provider makes a pod again, and however fast that is: restarts are counted, and never fall.
// What is remembered for that costs no write, neither here nor there.
func TestRestartsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.chainsForPods()
	l.start()
	l.pod("web")
	l.local.create(t, l.namespace, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: bare}
spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: web, image: "web:1"}], tolerations: [{operator: Exists}]}`, l.node))
	names := []string{"web", "bare"} // with annotations, and without
	shown := func(n int) {
		t.Helper()
		for _, name := range names {
			uid := l.remote.get(t, "Pod", l.remoteNS, name).GetUID()
			l.present(l.local, "Pod", l.namespace, name, restarts(n), func(o *unstructured.Unstructured) error {
				if note := o.GetAnnotations()[pod.RestartsAnnotation]; !strings.Contains(note, string(uid)) {
					return fmt.Errorf("the note is %q, want one about %s", note, uid)
				}
				return nil
			})
		}
	}
	for _, name := range names {
		l.runRemote(name, started(2))
	}
	shown(2)
	l.settled()
	if writes := append(l.local.writes(t), l.remote.writes(t)...); len(writes) != 4 {
		t.Errorf("two pods up to Running took the writes %q, want two each", writes)
	}
	for n := 3; n < 5; n++ {
		l.stop()
		for _, name := range names {
			l.remake(name, started(0))
		}
		l.start()
		shown(n)
		l.settled()
	}
	if writes := l.remote.writes(t); len(writes) != 2 {
		t.Errorf("the provider saw the writes %q, want the two ShadowPods", writes)
	}
	for _, name := range names {
		l.present(l.remote, "ShadowPod", l.remoteNS, name, field("metadata.annotations/"+pod.RestartsAnnotation, ""))
	}
	l.stop()
	l.quiet("a restart", func() { l.start() })

	// A pod of the time before there were notes: what is shown is all there is to go by.
	l.stop()
	l.local.patchYAML(t, "Pod", l.namespace, "web", `{metadata: {annotations: {`+pod.RestartsAnnotation+`: null}}}`)
	l.local.patchYAML(t, "Pod", l.namespace, "bare", `{metadata: {annotations: {`+pod.RestartsAnnotation+`: nonsense}}}`)
	l.quiet("a missing note", func() { l.start() })
	for _, name := range names {
		l.remoteStatus(name, started(1))
	}
	shown(5)
}

// An annotation, or a label, that came while the first one was on its way is not lost.
func TestFirstEntryIsNoOverwrite(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	old := l.local.create(t, l.namespace, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: bare}, spec: {nodeName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}}`, l.node))
	l.local.patchYAML(t, "Pod", l.namespace, "bare", `{metadata: {annotations: {theirs: kept}, labels: {theirs: kept}}}`)
	for _, m := range []pod.Marks{{Restarts: "{}"}, {Offloaded: true}} {
		err := l.patchStatus(old, nil, m)
		if got, _ := engine.Classify(err); got != engine.Conflict {
			t.Errorf("%+v: %v is %s, want %s", m, err, got, engine.Conflict)
		}
	}
	l.present(l.local, "Pod", l.namespace, "bare", field("metadata.annotations/theirs", "kept"), field("metadata.labels/theirs", "kept"))
}

// patchStatus writes a status as the handler of pods does.
func (l *lab) patchStatus(local *unstructured.Unstructured, status map[string]any, marks pod.Marks) error {
	patcher, ok := l.manager.Handler(PodKind).(interface {
		PatchStatus(ctx context.Context, w *engine.Worker, local *unstructured.Unstructured, status map[string]any, marks pod.Marks) error
	})
	if !ok {
		l.Fatal("the handler of pods writes no statuses")
	}
	return patcher.PatchStatus(l.Context(), &engine.Worker{}, local, status, marks)
}
