// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/test/support/apistub"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/kinds/kindtest"
	"github.com/refract-project/refract/vk/reflection/internal/objects"
)

var (
	eventKind   = corev1.SchemeGroupVersion.WithKind("Event")
	serviceKind = corev1.SchemeGroupVersion.WithKind("Service")
)

// lab reflects Events about the Service web.
type lab struct {
	*kindtest.Pair
	t     *testing.T
	h     *handler
	scope *engine.Scope
	in    *inbox
}

func services() engine.Kind {
	return engine.Kind{Name: "Service", Source: corev1.SchemeGroupVersion.WithResource("services"),
		Policy: engine.DenyList, Workers: 1, Status: objects.Status{Back: true}}
}

// newLab returns a lab whose Service has a copy.
func newLab(t *testing.T, edit func(*engine.Options)) *lab {
	t.Helper()
	l := &lab{Pair: kindtest.New(t, edit, Kind(), services()), t: t}
	l.scope = l.Prepare(Name, "Service")
	l.h = l.Manager.Handler(Name).(*handler)
	l.in = inboxOf(l.scope)
	require.NoError(t, l.Manager.Scope("Service", kindtest.Namespace).Put(
		kindtest.Object(t, `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop, uid: local, resourceVersion: "1"}}`),
		kindtest.Object(t, `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop-rome, uid: copy,
  resourceVersion: "1", creationTimestamp: "2020-01-01T00:00:00Z"}}`)))
	return l
}

// event returns an Event of the provider about an object with the given uid.
func event(t *testing.T, kind, uid string, count int) *unstructured.Unstructured {
	t.Helper()
	return kindtest.Object(t, fmt.Sprintf(`{apiVersion: v1, kind: Event, metadata: {name: web.1, namespace: shop-rome,
  uid: e, resourceVersion: "%d", creationTimestamp: "2020-02-01T00:00:00Z"}, type: %s, reason: Failed, message: oops, count: %d,
  involvedObject: {apiVersion: v1, kind: Service, name: web, namespace: shop-rome, uid: "%s"}}`, count, kind, count, uid))
}

// see delivers and evaluates an Event.
func (l *lab) see(e *unstructured.Unstructured) error {
	l.t.Helper()
	require.NoError(l.t, l.in.Add(e))
	return l.Reconcile(Name, "web.1")
}

// count returns the count of the shown Event, or 0 if it is not shown.
func (l *lab) count() int64 { return l.countOf("web.1") }

func (l *lab) countOf(name string) int64 {
	shown := l.Here.Get(eventKind, kindtest.Namespace, name)
	if shown == nil {
		return 0
	}
	n, _, _ := unstructured.NestedInt64(shown.Object, "count")
	return n
}

// TestLifeOfAShownEvent checks that an Event is shown, updated at most once in each Window, and removed when the
// provider's Event is deleted.
func TestLifeOfAShownEvent(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	require.NoError(t, l.in.Add(event(t, "Warning", "copy", 1)))
	assert.Equal(t, []string{"web.1"}, l.Queued(Name), "a warning does not wait")
	assert.NotNil(t, Waiting(l.scope, "web.1"))
	require.NoError(t, l.Reconcile(Name, "web.1"))
	assert.EqualValues(t, 1, l.count())
	assert.Nil(t, Waiting(l.scope, "web.1"))
	require.NoError(t, l.see(event(t, "Warning", "copy", 2)))
	assert.EqualValues(t, 1, l.count(), "the window has not passed")
	assert.Equal(t, 1, l.h.Waiting())
	l.Clock.Step(Window)
	assert.Len(t, l.h.schedule.due(l.Clock.Now(), 10), 1)
	require.NoError(t, l.Reconcile(Name, "web.1"))
	assert.EqualValues(t, 2, l.count())
	require.NoError(t, l.in.Add(event(t, "Warning", "copy", 2)))
	assert.Nil(t, Waiting(l.scope, "web.1"), "an Event without news is dropped")
	deleted := event(t, "Warning", "copy", 2)
	deleted.Object["lastTimestamp"] = l.Clock.Now().UTC().Format(time.RFC3339)
	require.NoError(t, l.in.Delete(deleted))
	require.NoError(t, l.Reconcile(Name, "web.1"))
	assert.Zero(t, l.count(), "an Event that was deleted is not shown")
	require.NoError(t, l.Reconcile(Name, "web.1"), "there is nothing to do")
}

// TestStepsOfAnEvent checks for many Events whether they are shown, wait or are dropped.
func TestStepsOfAnEvent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, uid string
		edit      func(l *lab, e *unstructured.Unstructured)
		class     failure.Class
		shown     int64
		scheduled int
		warning   string
	}{
		"normal":               {kind: "Normal", uid: "copy", shown: 1, scheduled: 1},
		"a warning":            {kind: "Warning", uid: "copy", shown: 1},
		"of an unknown object": {kind: "Normal", uid: "other", scheduled: 1},
		"of a kind that is not reflected": {kind: "Warning", uid: "copy", edit: func(_ *lab, e *unstructured.Unstructured) {
			e.Object["involvedObject"].(map[string]any)["kind"] = "Secret"
		}},
		"of no object here": {kind: "Warning", uid: "copy", edit: func(_ *lab, e *unstructured.Unstructured) {
			e.Object["involvedObject"].(map[string]any)["name"] = "other"
		}},
		"excluded by itself": {kind: "Warning", uid: "copy", edit: func(_ *lab, e *unstructured.Unstructured) {
			e.SetAnnotations(map[string]string{wire.SkipReflectionAnnotation: "true"})
		}},
		"a skipped one": {kind: "Warning", uid: "copy", edit: func(l *lab,
			_ *unstructured.Unstructured) {
			l.Chains.Set(host.Incoming, kindtest.Skip)
		}},
		"a failed plugin": {kind: "Warning", uid: "copy", edit: func(l *lab,
			_ *unstructured.Unstructured) {
			l.Chains.Set(host.Incoming,
				kindtest.Fail)
		}, class: failure.Plugin, warning: "cannot be shown here"},
		"a warned one": {kind: "Warning", uid: "copy", edit: func(l *lab,
			_ *unstructured.Unstructured) {
			l.Chains.Set(host.Incoming, kindtest.Warn)
		}, shown: 1, warning: "careful"},
		"refused for now": {kind: "Warning", uid: "copy", edit: failHere("create", apistub.Forbidden), class: failure.Refused},
		"refused for good": {kind: "Warning", uid: "copy", edit: failHere("create", apistub.Invalid),
			class: failure.Refused, warning: "cannot be shown here"},
		"this cluster is away": {kind: "Warning", uid: "copy", edit: failHere("create", apistub.Unavailable), class: failure.Unreachable},
		"a name of another client": {kind: "Warning", uid: "copy", edit: func(l *lab, _ *unstructured.Unstructured) {
			l.Here.Put(l.t, kindtest.Object(l.t, `{apiVersion: v1, kind: Event, metadata: {name: web.1, namespace: shop}, count: 7}`))
		}, shown: 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			e := event(t, c.kind, c.uid, 1)
			if c.edit != nil {
				c.edit(l, e)
			}
			err := l.see(e)
			kindtest.RequireClass(t, c.class, evaluation.Out, err)
			assert.Equal(t, c.shown, l.count())
			assert.Equal(t, c.scheduled, l.h.Waiting())
			if c.warning != "" {
				l.Events.Await(t, c.warning)
			}
			if c.shown == 7 {
				assert.EqualValues(t, 1, l.countOf(l.h.CopyName("web.1", true)), "the copy has the other name")
			}
		})
	}
}

func failHere(verb string, with *apistub.Failure) func(*lab, *unstructured.Unstructured) {
	return func(l *lab, _ *unstructured.Unstructured) {
		l.Here.OnRequest(func(r apistub.Request) *apistub.Failure {
			if r.Verb == verb && r.Resource == "events" {
				return with
			}
			return nil
		})
	}
}

// TestAnEventOfAnUnknownObjectEnds checks that an Event waits for its object only for a limited time.
func TestAnEventOfAnUnknownObjectEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	require.NoError(t, l.see(event(t, "Normal", "other", 1)))
	assert.NotNil(t, Waiting(l.scope, "web.1"))
	l.Clock.Step(unknownObjectGrace)
	require.NoError(t, l.Reconcile(Name, "web.1"))
	assert.Nil(t, Waiting(l.scope, "web.1"))
	assert.Zero(t, l.count())
}

// TestWarningsAreLimited checks that a flood of warnings is shown only at the limited rate.
func TestWarningsAreLimited(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.in.warnings.AllowN(l.Clock.Now(), WarningsBurst)
	require.NoError(t, l.see(event(t, "Warning", "copy", 1)))
	assert.Zero(t, l.count())
	assert.Equal(t, 1, l.h.Waiting())
	l.Clock.Step(warningDelay)
	require.NoError(t, l.Reconcile(Name, "web.1"))
	assert.EqualValues(t, 1, l.count())
}

// TestEventsAfterARestart checks that a restarted virtual kubelet writes no Event a second time, and removes the
// copies of young Events that were deleted while it did not run.
func TestEventsAfterARestart(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	require.NoError(t, l.see(event(t, "Warning", "copy", 1)))
	shown := l.Here.Get(eventKind, kindtest.Namespace, "web.1")
	l.in = newInbox(l.h, l.scope)
	l.scope.State = l.in
	l.in.Learn([]unstructured.Unstructured{*shown})
	l.Here.TakeSent()
	require.NoError(t, l.in.Replace([]any{event(t, "Warning", "copy", 1)}, ""))
	require.NoError(t, l.Reconcile(Name, "web.1"))
	assert.Empty(t, l.Here.TakeSent())
	l.in.entries["web.1"].said = l.Clock.Now()
	require.NoError(t, l.in.Replace(nil, ""))
	require.NoError(t, l.Reconcile(Name, "web.1"))
	assert.Zero(t, l.count())
	require.NoError(t, l.in.Resync())
}

// TestAnExpiredEventStays checks that the copy of an Event that may have expired is not deleted.
func TestAnExpiredEventStays(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	require.NoError(t, l.see(event(t, "Warning", "copy", 1)))
	require.NoError(t, l.in.Delete(event(t, "Warning", "copy", 1)), "its time is months ago")
	require.NoError(t, l.Reconcile(Name, "web.1"))
	assert.EqualValues(t, 1, l.count())
	require.NoError(t, l.in.Delete(event(t, "Warning", "copy", 1)), "it is forgotten")
	require.NoError(t, l.in.Delete("no Event"))
}

// TestAnExpiredCopyIsCreatedAgain checks that, if an Event changes after its copy has expired, the copy is created
// again.
func TestAnExpiredCopyIsCreatedAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	require.NoError(t, l.see(event(t, "Warning", "copy", 1)))
	l.Here.Remove(eventKind, kindtest.Namespace, "web.1")
	l.Clock.Step(Window)
	require.NoError(t, l.see(event(t, "Warning", "copy", 2)))
	assert.EqualValues(t, 2, l.count())
}

// TestManyEventsOfANamespace checks that the number of waiting Events is limited, except for warnings.
func TestManyEventsOfANamespace(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	l.in.waiting = WaitingMost
	require.NoError(t, l.in.Add(event(t, "Normal", "copy", 1)))
	assert.Nil(t, Waiting(l.scope, "web.1"))
	require.NoError(t, l.in.Update(event(t, "Warning", "copy", 2)))
	assert.NotNil(t, Waiting(l.scope, "web.1"))
}

// TestMissedEventsAreReadAgain checks that the watch is restarted when the objects of dropped Events become known.
func TestMissedEventsAreReadAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(l *lab, e *unstructured.Unstructured)
		then func(l *lab)
	}{
		"another leader": {func(l *lab, _ *unstructured.Unstructured) { l.Manager.Elect() }, func(l *lab) { l.h.StartedLeading() }},
		"a new kind": {func(_ *lab, e *unstructured.Unstructured) {
			e.Object["involvedObject"].(map[string]any)["kind"] = "ConfigMap"
		}, func(l *lab) {
			l.h.Synced(l.scope, &engine.Kind{Name: "ConfigMap", Source: corev1.SchemeGroupVersion.WithResource("configmaps")})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, nil)
			again := false
			l.in.begin(func() { again = true })
			e := event(t, "Warning", "copy", 1)
			c.edit(l, e)
			require.NoError(t, l.in.Add(e))
			l.h.Synced(l.scope, &engine.Kind{Name: "Pod"})
			assert.False(t, again)
			c.then(l)
			assert.True(t, again)
		})
	}
}

// TestEventsAreShown checks that a running Manager copies an Event of the provider, from the watch through the schedule
// to the write, even if the first list of this cluster's Events fails.
func TestEventsAreShown(t *testing.T) {
	t.Parallel()
	p := kindtest.New(t, nil, Kind(), services())
	p.Here.Put(t, kindtest.Object(t, `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}}`))
	fails := 1
	p.Here.OnRequest(func(r apistub.Request) *apistub.Failure {
		if r.Verb == "list" && r.Resource == "events" && fails > 0 {
			fails--
			return apistub.Unavailable
		}
		return nil
	})
	p.Run()
	var copied *unstructured.Unstructured
	p.Await("the Service does not cross", func() bool {
		copied = p.Provider.Get(serviceKind, kindtest.RemoteNamespace, "web")
		return copied != nil
	})
	e := event(t, "Normal", string(copied.GetUID()), 1)
	now := p.Clock.Now().UTC().Add(time.Hour).Format(time.RFC3339)
	e.Object["firstTimestamp"], e.Object["lastTimestamp"] = now, now
	p.Provider.Put(t, e)
	p.Await("the Event is not shown", func() bool { return p.Here.Get(eventKind, kindtest.Namespace, "web.1") != nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.Manager.Handler(Name).(*handler).Run(ctx)
}
