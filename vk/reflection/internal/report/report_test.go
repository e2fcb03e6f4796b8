// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// sink sends the written Events to a channel.
type sink chan *corev1.Event

func (s sink) Create(e *corev1.Event) (*corev1.Event, error)          { s <- e; return e, nil }
func (s sink) Update(e *corev1.Event) (*corev1.Event, error)          { s <- e; return e, nil }
func (s sink) Patch(e *corev1.Event, _ []byte) (*corev1.Event, error) { s <- e; return e, nil }
func (s sink) next(t *testing.T) string {
	t.Helper()
	select {
	case e := <-s:
		return e.Message
	case <-time.After(2 * time.Minute):
		t.Fatal("no Event is written")
		return ""
	}
}

func object(n int) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"namespace": "shop", "name": fmt.Sprint("web-", n)}}}
	o.SetUID(types.UID(fmt.Sprint(n)))
	return o
}

func TestAnEventIsWrittenOnce(t *testing.T) {
	r, written := New(func() { t.Error("an Event is dropped") }), make(sink, 10)
	r.Start(written)
	defer r.Close()
	web := object(0)
	r.Warn("Service", web, "Failed", "first")
	r.Warn("Service", web, "Failed", "first")
	r.Warn("Service", web, "Failed", "second")
	r.OK("Service", web.GetUID())
	r.Warn("Service", web, "Failed", "first")
	r.Warn("Service", nil, "Failed", "of nothing")
	for _, want := range []string{"first", "second", "first"} {
		if got := written.next(t); got != want {
			t.Errorf("got the Event %q, want %q", got, want)
		}
	}
}

// TestKindsReportByThemselves checks that two kinds can write Events about the same pod independently: neither
// suppresses or resets the Events of the other.
func TestKindsReportByThemselves(t *testing.T) {
	r, written := New(func() { t.Error("an Event is dropped") }), make(sink, 10)
	r.Start(written)
	defer r.Close()
	web := object(0)
	r.Warn("Pod", web, "Failed", "the provider is full")
	r.Warn("ServiceAccount", web, "Failed", "the provider is full")
	r.OK("Pod", web.GetUID())
	r.Warn("ServiceAccount", web, "Failed", "the provider is full")
	r.Warn("Pod", web, "Failed", "the provider is full")
	var from []string
	for range 3 {
		from = append(from, (<-written).Source.Component)
	}
	assert.Equal(t, []string{"liqo-pod-reflection", "liqo-serviceaccount-reflection", "liqo-pod-reflection"}, from)
	assert.Empty(t, written)
}

// TestEventsBeforeTheStartAreNotRemembered checks that an Event before Start does not count as reported, so that it is
// written when this replica becomes the leader.
func TestEventsBeforeTheStartAreNotRemembered(t *testing.T) {
	r, written := New(func() { t.Error("an Event is dropped") }), make(sink, 10)
	defer r.Close()
	r.Warn("Service", object(0), "Failed", "first")
	r.Start(written)
	r.Warn("Service", object(0), "Failed", "first")
	r.Warn("Service", object(0), "Failed", "second")
	for _, want := range []string{"first", "second"} {
		if got := written.next(t); got != want {
			t.Errorf("got the Event %q, want %q", got, want)
		}
	}
}

func TestTooManyEventsAreDropped(t *testing.T) {
	dropped := 0
	r := New(func() { dropped++ })
	r.Start(make(sink, 3*eventBurst))
	defer r.Close()
	for n := range 3 * eventBurst {
		r.Warn("Service", object(n), "Failed", "all of them")
	}
	if dropped < eventBurst {
		t.Errorf("%d Events of %d are dropped", dropped, 3*eventBurst)
	}
	before := dropped
	// A dropped Event does not count as reported, so the Reporter tries again to write it, and drops it again.
	r.Warn("Service", object(3*eventBurst-1), "Failed", "all of them")
	if dropped != before+1 {
		t.Error("an Event that was dropped is not tried again")
	}
}

// TestMessagesAreShortened checks that messages are truncated to the length that an API server accepts.
func TestMessagesAreShortened(t *testing.T) {
	r, written := New(func() {}), make(sink, 1)
	r.Start(written)
	defer r.Close()
	r.Warn("Service", object(0), "Failed", strings.Repeat("x", 5000))
	if got := written.next(t); len(got) > 1024 {
		t.Errorf("the message has %d bytes, at most 1024 are allowed", len(got))
	}
}

func TestTypesOfEvents(t *testing.T) {
	r, written := New(func() {}), make(sink, 2)
	r.Start(written)
	defer r.Close()
	r.Warn("Service", object(0), "Failed", "a warning")
	r.Note("Service", object(0), "Done", "a note")
	for _, want := range []string{corev1.EventTypeWarning, corev1.EventTypeNormal} {
		if got := <-written; got.Type != want {
			t.Errorf("%q is of type %s, want %s", got.Message, got.Type, want)
		}
	}
}
