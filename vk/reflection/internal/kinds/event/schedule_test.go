// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

func TestSchedule(t *testing.T) {
	a, start := newSchedule(), time.Unix(1000, 0)
	named := func(name string) queue.Key { return queue.Key{Namespace: "shop", Name: name} }
	for i, name := range []string{"third", "first", "second", "much-later"} {
		a.add(named(name), start.Add([]time.Duration{3, 1, 2, 3600}[i]*time.Second))
	}
	a.add(named("first"), start) // this call has no effect, because the key is already scheduled
	due := func(after time.Duration, most int) (names []string) {
		for _, key := range a.due(start.Add(after), most) {
			names = append(names, key.Name)
		}
		return names
	}
	for _, tc := range []struct {
		after time.Duration
		most  int
		want  []string
	}{
		{500 * time.Millisecond, 10, nil},
		{time.Minute, 2, []string{"first", "second"}},
		{time.Minute, 0, nil},
		{time.Minute, 10, []string{"third"}},
	} {
		if got := due(tc.after, tc.most); !slices.Equal(got, tc.want) {
			t.Errorf("after %s: %v, want %v", tc.after, got, tc.want)
		}
	}
	a.add(named("first"), start)
	if got := due(0, 10); !slices.Equal(got, []string{"first"}) || a.len() != 1 {
		t.Errorf("planned again: %v, and %d wait", got, a.len())
	}
}

// TestBelongs checks that only uids and times of the provider's clock determine the object of an Event.
func TestBelongs(t *testing.T) {
	made := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	object := func(uid, origin string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetUID(types.UID(uid))
		o.SetCreationTimestamp(metav1.NewTime(made))
		if origin != "" {
			o.SetAnnotations(map[string]string{copies.OriginUIDAnnotation: origin})
		}
		return o
	}
	local, shadow, pod := object("local", ""), object("shadow", "local"), object("pod", "local")
	for name, tc := range map[string]struct {
		b              belongs
		possible, sure bool
	}{
		"the copy's":                       {belongs{uid: "shadow", copy: shadow}, true, true},
		"the pod's, by a slow clock":       {belongs{uid: "pod", copy: shadow, made: pod, at: made.Add(-time.Minute)}, true, true},
		"the pod's after its shadow":       {belongs{uid: "pod", made: pod}, true, true},
		"an earlier pod's":                 {belongs{uid: "pod", copy: shadow, made: object("pod", "earlier")}, false, false},
		"an earlier shadow's":              {belongs{uid: "shadow", copy: object("shadow", "earlier")}, false, false},
		"the copy's, not known yet":        {belongs{uid: "other"}, true, false},
		"somebody's, before the copy":      {belongs{uid: "other", copy: shadow, at: made.Add(-time.Second)}, false, false},
		"somebody's, since":                {belongs{uid: "other", copy: shadow, at: made}, true, false},
		"nobody is named, since":           {belongs{copy: shadow, at: made}, true, true},
		"made from the copy, not watched":  {belongs{uid: "other", copy: shadow, at: made, unwatched: true}, true, true},
		"of an unmarked copy (Liqo's)":     {belongs{uid: "pod", copy: object("shadow", ""), made: object("pod", "")}, true, true},
		"before the copy, nobody is named": {belongs{copy: shadow, at: made.Add(-time.Second)}, false, false},
	} {
		tc.b.object = local
		if possible, sure := tc.b.decide(); possible != tc.possible || sure != tc.sure {
			t.Errorf("%s: possible %v, sure %v", name, possible, sure)
		}
	}
}

// TestRoutineEvents checks that the Events that every pod causes during a rollout count as routine.
func TestRoutineEvents(t *testing.T) {
	made := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	copied := &unstructured.Unstructured{Object: map[string]any{}}
	copied.SetCreationTimestamp(metav1.NewTime(made))
	for text, want := range map[string]bool{
		"Normal SuccessfulReflection Pod 0": true, "Normal SuccessfulSATokensReflection Pod 0": true, "Normal CreatedPod ShadowPod 3": true,
		"Normal CreatedPod ShadowPod 60": false, "Normal CreatedPod Pod 3": false, "Warning CreatedPod ShadowPod 3": false, "Normal Scheduled Pod 1": false,
	} {
		var kind, reason, about string
		var after int
		_, err := fmt.Sscan(text, &kind, &reason, &about, &after)
		require.NoError(t, err)
		event := &unstructured.Unstructured{Object: map[string]any{"type": kind, "reason": reason,
			"series": map[string]any{"lastObservedTime": made.Add(time.Duration(after) * time.Second).Format(time.RFC3339Nano)}}}
		if got := routine(event, schema.GroupKind{Kind: about}, copied); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// TestEventHash checks that the hash depends on the fields that change when an Event is repeated, and not on how an API
// server encodes a value.
func TestEventHash(t *testing.T) {
	event := func(text string) uint64 {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		require.NoError(t, json.Unmarshal([]byte(text), &o.Object))
		return rawEventHash(o)
	}
	base := event(`{"count": 1, "message": "x", "metadata": {"name": "a"}, "source": {}}`)
	if base != event(`{"count": 1, "message": "x", "series": null, "action": "", "involvedObject": {"uid": "u"}, "source": {"component": "c"}}`) {
		t.Error("what says nothing makes a difference")
	}
	for _, other := range []string{`{"count": 2, "message": "x"}`, `{"count": 1, "message": "y"}`, `{"count": 1, "message": "x", "series": {"count": 2}}`,
		`{"count": 1, "message": "x", "lastTimestamp": "2026-01-01T00:00:00Z"}`, `{"count": 1, "message": "x", "type": "Warning"}`} {
		if event(other) == base {
			t.Errorf("%s makes no difference", other)
		}
	}
	if event(`{}`) == 0 {
		t.Error("0 means that there is no copy")
	}
}

const benchEvent = `{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "web-7d4b9c6f5d-x%04d.17a3f2b1c0d9e8f7", "namespace": "shop-rome", "uid": "8d0b5f0e-0c43-4c55-9d0f-00000000%04d",
  "resourceVersion": "12345", "creationTimestamp": "2026-01-01T00:00:00Z"}, "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "web-7d4b9c6f5d-x%04d", "namespace": "shop-rome",
  "uid": "1c0e5f0e-0c43-4c55-9d0f-00000000%04d", "resourceVersion": "12344", "fieldPath": "spec.containers{web}"}, "type": "Normal", "reason": "Pulled",
  "message": "Container image \"registry.example.com/shop/web:1.2.3\" already present on machine", "source": {"component": "kubelet", "host": "worker-7"}, "reportingComponent": "kubelet",
  "reportingInstance": "worker-7", "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "eventTime": null, "count": 1}`

// BenchmarkEventMemory measures the memory that an Event needs while it waits for a write, and afterwards while its
// copy is known.
func BenchmarkEventMemory(b *testing.B) {
	h := &handler{schedule: newSchedule()}
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	const events = 1000
	for b.Loop() {
		before := heap()
		box := newInbox(h, &engine.Scope{})
		for n := range events {
			event := &unstructured.Unstructured{}
			if err := event.UnmarshalJSON(fmt.Appendf(nil, benchEvent, n, n, n, n)); err != nil {
				b.Fatal(err)
			}
			e := &entry{}
			box.entries[event.GetName()] = e
			box.put(e, event, time.Now())
		}
		waiting := heap()
		for name, e := range box.entries {
			known := *e
			known.copy = 1
			box.close(name, &known)
		}
		shown := heap()
		b.ReportMetric((waiting-before)/events, "B/waiting")
		b.ReportMetric((shown-before)/events, "B/shown")
		runtime.KeepAlive(box)
	}
}
