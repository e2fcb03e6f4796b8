// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package report writes Events about objects of this cluster. It suppresses duplicates and limits the rate of Events.
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
	// eventRate and eventBurst limit all Events of the process, because a plugin that fails for ten thousand objects
	// must not cause ten thousand Events at once. Dropped Events are counted.
	eventRate  = 10
	eventBurst = 100
)

// Reporter writes Events about objects of this cluster. An Event is not repeated while its object has the same problem.
// The rate is limited by eventRate and eventBurst. A Reporter is safe for concurrent use.
type Reporter struct {
	broadcaster record.EventBroadcaster
	limiter     flowcontrol.RateLimiter
	dropped     func()
	started     atomic.Bool
	said        eventrecorder.Memory[about]

	mu        sync.Mutex
	recorders map[string]record.EventRecorder
}

// about identifies the object of an Event and the kind that writes the Event. Events of different kinds are recorded
// independently, because several kinds may write Events about the same object, such as a pod.
type about struct {
	kind string
	uid  types.UID
}

// New returns a Reporter that writes no Events before Start. dropped is called for each Event that exceeds the rate
// limit.
func New(dropped func()) *Reporter {
	return &Reporter{
		broadcaster: record.NewBroadcaster(), limiter: flowcontrol.NewTokenBucketRateLimiter(eventRate, eventBurst), dropped: dropped,
		recorders: map[string]record.EventRecorder{},
	}
}

// Start makes the Reporter write Events to the sink until Close is called.
func (r *Reporter) Start(sink record.EventSink) {
	r.broadcaster.StartRecordingToSink(sink)
	r.started.Store(true)
}

// Close stops the Reporter. Events that were not written yet are lost.
func (r *Reporter) Close() { r.broadcaster.Shutdown() }

// Warn writes a warning Event about a problem of an object. The same problem is reported only once, unless it changes
// or OK is called.
func (r *Reporter) Warn(kind string, object *unstructured.Unstructured, reason, message string) {
	r.writeEvent(kind, object, corev1.EventTypeWarning, reason, message)
}

// Note writes an Event of type Normal about an object. The same Event is not written again unless it changes or OK is
// called.
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

// OK records that an object has no problem, or no longer exists. The next problem is reported again, even if it is the
// same.
func (r *Reporter) OK(kind string, uid types.UID) { r.said.Clear(about{kind, uid}) }

// Recorder returns the EventRecorder of a kind. Users see its name as the source of the Events.
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

// KindReporter writes the Events of one kind. It is safe for concurrent use.
type KindReporter struct {
	reporter *Reporter
	kind     string
}

// ForKind returns the KindReporter of a kind.
func (r *Reporter) ForKind(kind string) *KindReporter { return &KindReporter{r, kind} }

// Warn writes a warning Event about a problem of an object. See Reporter.Warn.
func (k *KindReporter) Warn(object *unstructured.Unstructured, reason, message string) {
	k.reporter.Warn(k.kind, object, reason, message)
}

// Note writes an Event of type Normal about an object. See Reporter.Note.
func (k *KindReporter) Note(object *unstructured.Unstructured, reason, message string) {
	k.reporter.Note(k.kind, object, reason, message)
}

// OK records that an object has no problem, or no longer exists. See Reporter.OK.
func (k *KindReporter) OK(uid types.UID) { k.reporter.OK(k.kind, uid) }
