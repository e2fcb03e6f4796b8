// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// terminatingTries is the number of failed writes to a namespace that is being deleted before the failure is reported:
// about a second of backoff. By then the NamespaceMap usually no longer offloads the namespace.
const terminatingTries = 8

// run starts the workers, which stop when ctx ends.
func (r *reflector) run(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(ctx)
	for range r.kind.Workers {
		r.runFor(func() {
			w := evaluation.NewWorker(r.m.log)
			for {
				key, shutdown := r.queue.Get()
				if shutdown {
					return
				}
				r.process(ctx, w, key)
				r.queue.Done(key)
				w.Settle(key.Name)
			}
		})
	}
	r.runFor(func() { <-ctx.Done(); r.queue.ShutDown() })
	for _, informer := range r.informers {
		r.runFor(func() { informer.Run(ctx) })
	}
	r.runFor(func() { r.handler.Run(ctx) })
}

// runFor runs f in a goroutine. Both the Manager and the reflector wait for it when they stop.
func (r *reflector) runFor(f func()) {
	r.wg.Add(1)
	r.m.wg.Go(func() {
		defer r.wg.Done()
		f()
	})
}

// object returns the cached object of this cluster with the given key, or nil if it is not cached.
func (r *reflector) object(key queue.Key) *unstructured.Unstructured {
	if r.ofNode != nil {
		return r.ofNode.Get(key.Namespace, key.Name)
	}
	if t := r.m.extension(key.Namespace); t != nil && !r.kind.Reverse {
		if s := t.of(r.kind.Name); s != nil {
			return s.objects.Get(key.Namespace, key.Name)
		}
	}
	return nil
}

// recheckUnobserved periodically enqueues the objects with writes that the watch has not delivered yet, until ctx
// ends.
func (m *Manager) recheckUnobserved(ctx context.Context) {
	for {
		select {
		case <-m.options.Clock.After(mutationcache.Grace):
		case <-ctx.Done():
			return
		}
		for _, t := range m.allExtensions() {
			for _, r := range m.all() {
				if s := t.of(r.kind.Name); s != nil && !r.kind.Reverse {
					s.recheckUnobserved()
				}
			}
		}
	}
}

// process evaluates one object and handles the result.
func (r *reflector) process(ctx context.Context, w *evaluation.Worker, key queue.Key) {
	if ctx.Err() != nil {
		return
	}
	w.Reset()
	err := r.safely(ctx, w, key)
	r.m.evaluated.Add(1)
	r.evaluated.Add(1)
	again, failures := r.judge(w, key, err)
	if len(failures) == 0 {
		r.countFor(key.Namespace, r.m.metrics.Items)
		r.m.metrics.Objects.WithLabelValues(r.kind.Name, w.Result).Inc()
		// If nothing was written and the object is evaluated again after a short delay, the change has not been
		// reflected yet. An evaluation after an hour, to renew a token, does not belong to the same change.
		if again == 0 || w.Out || w.Back || again > sameChange {
			r.passed(w, key)
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	r.countFor(key.Namespace, r.m.metrics.ItemErrors)
	r.m.metrics.Objects.WithLabelValues(r.kind.Name, "failed").Inc()
	for direction, err := range failures {
		r.failed(key, direction, err)
	}
}

// judge returns the errors of the failed directions. It enqueues the object again for a direction with a RetryAfter
// or an ignored failure of a plugin. again is the shortest delay of a RetryAfter, or 0 if there is none.
func (r *reflector) judge(w *evaluation.Worker, key queue.Key, err error) (again time.Duration, failures map[evaluation.Direction]error) {
	failures = evaluation.Directions(err)
	for direction, err := range failures {
		var later *failure.RetryAfter
		if err != nil && !errors.As(err, &later) {
			continue
		}
		delete(failures, direction)
		r.queue.Retries.Succeeded(key, direction)
		r.retryIgnored(w, key, direction)
		if later != nil {
			r.queue.AddAfter(key, later.After)
			if again == 0 || later.After < again {
				again = later.After
			}
		}
	}
	return again, failures
}

// countFor counts an evaluation for a namespace. It has no effect if the namespace is no longer offloaded.
func (r *reflector) countFor(namespace string, counter *prometheus.CounterVec) {
	r.m.mu.RLock()
	defer r.m.mu.RUnlock()
	if r.m.extensions[namespace] != nil {
		counter.WithLabelValues(namespace, r.kind.Liqo(), r.m.options.RemoteClusterID, r.m.options.NodeName).Inc()
	}
}

// safely evaluates an object, and returns a panic in the evaluation as an error of this object, so that other objects
// are still evaluated.
func (r *reflector) safely(ctx context.Context, w *evaluation.Worker, key queue.Key) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			r.m.log.Error("Recovered from a panic while reconciling an object", "kind", r.kind.Name, "object", key.String(), "panic", cause, "stack", string(debug.Stack()))
			err = fmt.Errorf("reflecting %s: internal error: %v", key, cause)
			w.Doc = document.New()
		}
	}()
	if !r.isActive() {
		return nil
	}
	t := r.m.extension(key.Namespace)
	if t == nil {
		r.queue.PluginRetries.Forget(key)
		return r.handler.NotOffloaded(ctx, w, key)
	}
	if s := t.of(r.kind.Name); s != nil && (r.kind.Reverse || s.ready.Load()) {
		if r.kind.Tracked {
			w.Track(&s.steps, key.Name)
		}
		return r.handler.Reconcile(ctx, w, s, key)
	}
	return nil
}

// isActive reports whether this virtual kubelet reconciles the kind. It reconciles the objects of its node as soon as
// it is certain that the node belongs to it (see Settings.NodeIsOurs), and objects of the provider while it is the
// leader.
func (r *reflector) isActive() bool {
	switch {
	case r.kind.PerNode:
		return r.m.settings.NodeIsOurs()
	case r.kind.Reverse:
		return true // the handler selects its own objects
	}
	return r.m.leading.Load()
}

// failed reports the error of one direction to the user, and schedules the next attempt.
func (r *reflector) failed(key queue.Key, direction evaluation.Direction, err error) {
	kind, reason := failure.Classify(err)
	r.m.metrics.Errors.WithLabelValues(r.kind.Name, string(kind), string(direction)).Inc()
	r.m.log.Debug("Object was not reflected", "kind", r.kind.Name, "object", key.String(), "direction", direction, "class", kind, "err", err)
	if direction == evaluation.Out {
		r.noteLag(key, kind, err)
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) && r.queue.Retries.Count(key, direction) >= terminatingTries {
		reason = wire.FailedReflectionReason
	}
	if reason == wire.FailedReflectionReason && r.kind.FailureReason != "" {
		reason = r.kind.FailureReason
	}
	if kind == failure.Throttled && !r.longThrottled(key) {
		reason = ""
	}
	if reason != "" {
		r.events.Warn(r.object(key), reason, r.message(kind, direction, err))
	}
	var fight *oscillation.QuarantineError
	switch kind {
	// Another client or a user must act before the object can be reflected, so neither the time nor the backoff
	// counts.
	case failure.Foreign, failure.Quarantine, failure.Plugin, failure.Input:
		r.queue.Arrivals.Take(key)
		r.queue.Retries.Succeeded(key, direction)
	}
	switch kind {
	case failure.Unreachable:
		r.park(key)
	case failure.Throttled:
		r.queue.Retries.Succeeded(key, direction)
		r.queue.AddAfter(key, failure.Pause(err))
	case failure.Foreign:
		r.queue.AddAfter(key, r.m.options.RecheckAfter)
	case failure.Quarantine:
		if errors.As(err, &fight) {
			r.queue.AddAfter(key, fight.Left)
		}
	case failure.Plugin:
		r.queue.AddAfter(key, r.queue.PluginRetries.Next(key, direction))
	case failure.Input:
	default:
		r.queue.AddAfter(key, r.queue.Retries.Next(key, direction))
	}
}

// Ends of messages about plugins that failed.
const (
	copyUnchangedNotice   = "the remote object was left unchanged"
	statusUnchangedNotice = "the status was left unchanged"
)

// message returns the text of the Event about an error: the direction, the error, its remedy, and what stays
// unchanged.
func (r *reflector) message(kind failure.Class, direction evaluation.Direction, err error) string {
	text, unchanged := fmt.Sprintf("to cluster %s: %v", r.m.options.RemoteClusterID, err), copyUnchangedNotice
	if direction == evaluation.Back {
		text, unchanged = fmt.Sprintf("status from cluster %s: %v", r.m.options.RemoteClusterID, err), statusUnchangedNotice
	}
	if hint := failure.Remedy(err); hint != "" {
		text += ": " + hint
	}
	if kind == failure.Plugin {
		text += " (" + unchanged + ")"
	}
	return text
}

// park stores a key until the provider is reachable again. If the provider is reachable, because this cluster's API
// server caused the error, the key is retried.
func (r *reflector) park(key queue.Key) {
	r.queue.Park(key)
	if r.m.Reachable() {
		r.queue.Unpark()
	}
}

// sameChange is the maximum delay before an object is enqueued again as part of the same change.
const sameChange = time.Minute

// passed records how long it took to reflect a change to an object. If the evaluation has written nothing, no duration
// is recorded.
func (r *reflector) passed(w *evaluation.Worker, key queue.Key) {
	since, known := r.queue.Arrivals.Take(key)
	if !known {
		return
	}
	seconds := r.m.options.Clock.Since(since).Seconds()
	if w.Out {
		r.m.metrics.Crossing.WithLabelValues(r.kind.Name, string(evaluation.Out)).Observe(seconds)
	}
	if w.Back {
		r.m.metrics.Crossing.WithLabelValues(r.kind.Name, string(evaluation.Back)).Observe(seconds)
	}
}

// retryIgnored enqueues an object again if a plugin with ignoreFailure failed in a direction that otherwise succeeded.
// The delay of a direction is reset only when its chain has run without a failure.
func (r *reflector) retryIgnored(w *evaluation.Worker, key queue.Key, d evaluation.Direction) {
	switch run := w.Chains.Direction(d); {
	case run.Ignored:
		r.queue.AddAfter(key, r.queue.PluginRetries.Next(key, d))
	case run.Ran:
		r.queue.PluginRetries.Succeeded(key, d)
	}
}

// arrived records that an object of the reflector's kind was enqueued.
func (r *reflector) arrived(key queue.Key) {
	if s := r.tracked(key); s != nil {
		s.steps.Mark(key.Name)
	}
}

// tracked returns the scope of an object of a tracked kind, or nil.
func (r *reflector) tracked(key queue.Key) *Scope {
	if !r.kind.Tracked {
		return nil
	}
	if t := r.m.extension(key.Namespace); t != nil {
		return t.of(r.kind.Name)
	}
	return nil
}

// noteLag records the error that keeps the copy of an object from being up to date.
func (r *reflector) noteLag(key queue.Key, class failure.Class, err error) {
	if s := r.tracked(key); s != nil {
		s.steps.Fail(key.Name, err, class.Lasts(), r.m.options.Clock.Now())
	}
}

// throttledLong is how long the requests for an object must be throttled before an Event reports it. A shorter time
// would increase the load on an API server that is already overloaded.
const throttledLong = 10 * time.Second

// longThrottled reports whether the requests for an object were throttled for so long that an Event must report it.
func (r *reflector) longThrottled(key queue.Key) bool {
	since, known := r.queue.Arrivals.Since(key)
	return known && r.m.options.Clock.Since(since) >= throttledLong
}

// isUrgent reports whether an object is reconciled before objects that are only to be created: its copy exists
// already, or the object was deleted or is being deleted.
func (r *reflector) isUrgent(key queue.Key) bool {
	t := r.m.extension(key.Namespace)
	if t == nil || r.kind.Reverse {
		return false
	}
	s := t.of(r.kind.Name)
	if s == nil {
		return false
	}
	if s.CachedCopy(key.Name) != nil {
		return true
	}
	object := s.objects.Get(key.Namespace, key.Name)
	return object == nil || raw.Nested(object.Object, "metadata", "deletionTimestamp") != nil
}
