// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package report writes Events on the objects of this cluster, without duplicates and with a rate limit.
package report

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/refract-project/refract/internal/eventrecorder"
)

const (
	// eventRate and eventBurst limit all Events of the process: a plugin that fails on ten thousand objects must not
	// cause ten thousand Events at once. Dropped Events are counted.
	eventRate  = 10
	eventBurst = 100
)

// Reporter writes Events on the objects of this cluster. It writes the same Event about the same object once, within
// the limits above. Safe for concurrent use.
type Reporter struct {
	broadcaster record.EventBroadcaster
	limiter     flowcontrol.RateLimiter
	dropped     func()
	started     atomic.Bool
	said        eventrecorder.Memory[about]

	mu        sync.Mutex
	recorders map[string]record.EventRecorder
}

// about distinguishes the Events of several kinds about one object. Two kinds report on pods, for example.
type about struct {
	kind string
	uid  types.UID
}

// New returns a Reporter that writes nothing before Start. dropped is called for each Event above the limit.
func New(dropped func()) *Reporter {
	return &Reporter{
		broadcaster: record.NewBroadcaster(), limiter: flowcontrol.NewTokenBucketRateLimiter(eventRate, eventBurst), dropped: dropped,
		recorders: map[string]record.EventRecorder{},
	}
}

// Start makes the Reporter write to the sink until Close.
func (r *Reporter) Start(sink record.EventSink) {
	r.broadcaster.StartRecordingToSink(sink)
	r.started.Store(true)
}

// Close stops the Reporter. Unwritten Events are lost.
func (r *Reporter) Close() { r.broadcaster.Shutdown() }

// Warn reports a problem of an object, once until it changes or OK is called.
func (r *Reporter) Warn(kind string, object *unstructured.Unstructured, reason, message string) {
	r.writeEvent(kind, object, corev1.EventTypeWarning, reason, message)
}

// Note reports a normal Event, once.
func (r *Reporter) Note(kind string, object *unstructured.Unstructured, reason, message string) {
	r.writeEvent(kind, object, corev1.EventTypeNormal, reason, message)
}

func (r *Reporter) writeEvent(kind string, object *unstructured.Unstructured, eventType, reason, message string) {
	if object == nil || !r.started.Load() {
		return
	}
	r.said.WriteOnce(about{kind, object.GetUID()}, eventType+reason, message, func(message string) bool {
		if !r.limiter.TryAccept() {
			r.dropped()
			return false
		}
		r.Recorder(kind).Event(object, eventType, reason, message)
		return true
	})
}

// OK forgets the reported Events of an object that is fine now, or gone, so that the next problem is reported again.
func (r *Reporter) OK(kind string, uid types.UID) { r.said.Clear(about{kind, uid}) }

// Recorder returns the recorder of a kind. Its name shows users the source of these Events.
func (r *Reporter) Recorder(kind string) record.EventRecorder {
	r.mu.Lock()
	defer r.mu.Unlock()
	recorder := r.recorders[kind]
	if recorder == nil {
		name := strings.ToLower(schema.ParseGroupKind(kind).Kind)
		recorder = r.broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: fmt.Sprintf("liqo-%s-reflection", name)})
		r.recorders[kind] = recorder
	}
	return recorder
}
