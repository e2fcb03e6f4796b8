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
	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
)

// terminatingTries is the number of failed writes to a namespace that is being deleted before the failure is reported:
// about a second of backoff. By then the NamespaceMap usually no longer offloads the namespace.
const terminatingTries = 8

// run starts the workers; they end when ctx does.
func (r *reflector) run(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(ctx)
	for range r.kind.Workers {
		r.runFor(func() {
			w := NewWorker(r.m.log)
			for {
				key, shutdown := r.queue.Get()
				if shutdown {
					return
				}
				r.process(ctx, w, key)
				r.queue.Done(key)
				w.settle(key)
			}
		})
	}
	r.runFor(func() { <-ctx.Done(); r.queue.ShutDown() })
	for _, informer := range r.informers {
		r.runFor(func() { informer.Run(ctx) })
	}
	r.runFor(func() { r.handler.Run(ctx) })
}

// runFor runs f as a part of both the Manager and the reflector.
func (r *reflector) runFor(f func()) {
	r.wg.Add(1)
	r.m.wg.Go(func() {
		defer r.wg.Done()
		f()
	})
}

// object returns the cached object of this cluster, or nil.
func (r *reflector) object(key Key) *unstructured.Unstructured {
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

// recheckUnobserved enqueues the objects whose writes the watch has not delivered, until ctx ends.
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
func (r *reflector) process(ctx context.Context, w *Worker, key Key) {
	if ctx.Err() != nil {
		return
	}
	w.Result, w.Warned, w.out, w.back, w.matched = Unchanged, false, false, false, 0
	w.scope, w.inStep, w.chains = nil, false, chainRuns{}
	err := r.safely(ctx, w, key)
	r.m.evaluated.Add(1)
	r.evaluated.Add(1)
	again, failures := r.judge(w, key, err)
	if len(failures) == 0 {
		r.countFor(key.Namespace, r.m.metrics.items)
		r.m.metrics.objects.WithLabelValues(r.kind.Name, w.Result).Inc()
		// A short requeue belongs to the same change. A requeue after an hour, to renew a token, does not.
		if again == 0 || w.out || w.back || again > sameChange {
			r.passed(w, key)
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	r.countFor(key.Namespace, r.m.metrics.itemErrors)
	r.m.metrics.objects.WithLabelValues(r.kind.Name, "failed").Inc()
	for direction, err := range failures {
		r.failed(key, direction, err)
	}
}

// judge returns the failed directions. It enqueues the object again for a direction with a RetryAfter or an ignored
// failure of a plugin. again is the shortest delay of a RetryAfter, or 0 if there is none.
func (r *reflector) judge(w *Worker, key Key, err error) (again time.Duration, failures map[Direction]error) {
	failures = directions(err)
	for direction, err := range failures {
		var later *RetryAfter
		if err != nil && !errors.As(err, &later) {
			continue
		}
		delete(failures, direction)
		r.retries.succeeded(key, direction)
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

// countFor counts an evaluation for a namespace, as long as it is offloaded.
func (r *reflector) countFor(namespace string, counter *prometheus.CounterVec) {
	r.m.mu.RLock()
	defer r.m.mu.RUnlock()
	if r.m.extensions[namespace] != nil {
		counter.WithLabelValues(namespace, r.kind.Liqo(), r.m.options.RemoteClusterID, r.m.options.NodeName).Inc()
	}
}

// safely turns a panic about one object into an error of the object.
func (r *reflector) safely(ctx context.Context, w *Worker, key Key) (err error) {
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
		r.pluginRetries.forget(key)
		return r.handler.NotOffloaded(ctx, w, key)
	}
	if s := t.of(r.kind.Name); s != nil && (r.kind.Reverse || s.ready.Load()) {
		if r.kind.Tracked {
			w.scope, w.turn = s, s.steps.begin(key.Name)
		}
		return r.handler.Reconcile(ctx, w, s, key)
	}
	return nil
}

// isActive reports whether this virtual kubelet reconciles the kind. It reconciles objects of its node once the node is
// known to be its own (see nodeChanged), and objects of the provider while it leads.
func (r *reflector) isActive() bool {
	switch {
	case r.kind.PerNode:
		return r.m.nodeIsOurs.Load()
	case r.kind.Reverse:
		return true // the handler selects its own objects
	}
	return r.m.leading.Load()
}

// failed reports an error of one direction to the user, and schedules the next try.
func (r *reflector) failed(key Key, direction Direction, err error) {
	kind, reason := Classify(err)
	r.m.metrics.errors.WithLabelValues(r.kind.Name, string(kind), string(direction)).Inc()
	r.m.log.Debug("Object was not reflected", "kind", r.kind.Name, "object", key.String(), "direction", direction, "class", kind, "err", err)
	if direction == Out {
		r.noteLag(key, kind, err)
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) && r.retries.count(key, direction) >= terminatingTries {
		reason = wire.FailedReflectionReason
	}
	if reason == wire.FailedReflectionReason && r.kind.FailureReason != "" {
		reason = r.kind.FailureReason
	}
	if kind == Throttled && !r.longThrottled(key) {
		reason = ""
	}
	if reason != "" {
		r.m.events.Warn(r.kind.Name, r.object(key), reason, r.message(kind, direction, err))
	}
	var fight *oscillation.QuarantineError
	switch kind {
	case Foreign, Quarantine, Plugin, Input: // another client or a user must resolve these first
		r.arrivals.take(key)
		r.retries.succeeded(key, direction)
	}
	switch kind {
	case Unreachable:
		r.park(key)
	case Throttled:
		r.retries.succeeded(key, direction)
		r.queue.AddAfter(key, pause(err))
	case Foreign:
		r.queue.AddAfter(key, r.m.options.RecheckAfter)
	case Quarantine:
		if errors.As(err, &fight) {
			r.queue.AddAfter(key, fight.Left)
		}
	case Plugin:
		r.queue.AddAfter(key, r.pluginRetries.next(key, direction))
	case Input:
	default:
		r.queue.AddAfter(key, r.retries.next(key, direction))
	}
}

func (r *reflector) message(kind Class, direction Direction, err error) string {
	text, unchanged := fmt.Sprintf("to cluster %s: %v", r.m.options.RemoteClusterID, err), pluginErrorRetryNotice
	if direction == Back {
		text, unchanged = fmt.Sprintf("status from cluster %s: %v", r.m.options.RemoteClusterID, err), statusUnchangedNotice
	}
	if hint := remedy(err); hint != "" {
		text += ": " + hint
	}
	if kind == Plugin {
		text += " (" + unchanged + ")"
	}
	return text
}

// park keeps a key until the provider is reachable again. If the provider is reachable, because the error was one of
// this cluster's API server, the key is retried.
func (r *reflector) park(key Key) {
	r.mu.Lock()
	r.parked[key] = struct{}{}
	r.mu.Unlock()
	if r.m.Reachable() {
		r.unpark()
	}
}

func (r *reflector) unpark() {
	for key := range r.takeParked() {
		r.queue.AddAfter(key, r.retries.next(key, Out))
	}
}

// comeBack resumes the keys that waited for the provider, spread over time.
func (r *reflector) comeBack() {
	waiting := r.takeParked()
	for key := range waiting {
		r.queue.AddAfter(key, breaker.Turn(len(waiting)))
	}
}

func (r *reflector) takeParked() map[Key]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := r.parked
	r.parked = map[Key]struct{}{}
	return waiting
}
