// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"strings"
	"time"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/pods"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

const (
	// AwaitingReferencesReason is the reason of the Event that names what a pod waits for.
	AwaitingReferencesReason = "AwaitingReferences"
	// OutdatedReferencesReason is the reason of the Event that a pod starts although something it refers to is not in step.
	OutdatedReferencesReason = "OutdatedReferences"
	// arrivalTime is how long references may take to cross before an Event names them. They are often written together with the pod: an earlier
	// one would be about nothing.
	arrivalTime = 2 * time.Second
	// shownLags is how many objects an Event names.
	shownLags = 5
)

// awaitReferences returns an error, which has the pod reconciled again, as long as its containers should not start on the provider because
// something that they read there is older than here. A Kubernetes container sees what was written before it starts.
//
// That ends when everything is in step, which enqueues the pod, after Options.ReferenceTimeout, or when what is not in step has failed for as long:
// one broken object must not keep pods from starting. An Event then lists what is not in step. Without such an object it costs no call.
func (h *Handler) awaitReferences(w *engine.Worker, v *podView, spec document.View) error {
	limit := h.Options().ReferenceTimeout
	if limit <= 0 {
		return nil
	}
	lags := v.scope.Lags(ReferencesOf(spec), v.key)
	if len(lags) == 0 {
		v.state.awaiting = time.Time{}
		return nil
	}
	if err := h.Reachable(); err != nil {
		v.state.awaiting = time.Time{} // what is written meanwhile crosses when the provider is back, and takes its time again
		return err
	}
	now := h.Clock().Now()
	if v.state.awaiting.IsZero() {
		v.state.awaiting = now
	}
	next := v.state.awaiting
	for _, lag := range lags {
		if until := waitUntil(lag, v.state.awaiting, limit); until.After(next) {
			next = until
		}
	}
	if !next.After(now) {
		w.Warned = true
		h.Warn(v.local, OutdatedReferencesReason, fmt.Sprintf("starting on cluster %s although this is not up to date there: %s. The pod may read an earlier version, or wait for it there;"+
			" recreate the pod once the cause is removed", h.Options().RemoteClusterID, listLags(lags)))
		return nil
	}
	if told := v.state.awaiting.Add(arrivalTime); told.After(now) {
		next = earlier(next, told)
	} else {
		h.Note(v.local, AwaitingReferencesReason, fmt.Sprintf("not started on cluster %s yet: waiting up to %s until this is up to date there: %s", h.Options().RemoteClusterID, limit, listLags(lags)))
	}
	return &engine.RetryAfter{After: next.Sub(now)}
}

// waitUntil returns how long a pod that waits since a time waits for an object at most.
func waitUntil(lag engine.Lag, since time.Time, limit time.Duration) time.Time {
	until := since.Add(limit)
	if lag.Failing.IsZero() {
		return until
	}
	return earlier(until, lag.Failing.Add(limit))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// listLags names objects, with what is wrong with them.
func listLags(lags []engine.Lag) string {
	shown := make([]string, 0, len(lags))
	for _, lag := range lags[:min(len(lags), shownLags)] {
		shown = append(shown, lag.String())
	}
	text := strings.Join(shown, "; ")
	if more := len(lags) - len(shown); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// mayStart returns an error as long as what the worker's document says would start containers that are not to start yet: those of a pod that the
// provider does not have, or a container with another image, or a further one for debugging.
func (h *Handler) mayStart(w *engine.Worker, v *podView) error {
	spec := w.Doc.Root().View().Field("spec")
	if v.shadow != nil {
		have, _ := raw.Nested(v.shadow.Object, h.Kind().Copy.Into...).(map[string]any)
		if !pods.StartsContainer(spec, have) {
			return nil
		}
	}
	return h.awaitReferences(w, v, spec)
}
