// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/pods"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

const (
	// AwaitingReferencesReason is the reason of the Event that lists the objects a pod waits for.
	AwaitingReferencesReason = "AwaitingReferences"
	// OutdatedReferencesReason is the reason of the Event on a pod that starts although objects that it refers to are
	// not up to date on the provider.
	OutdatedReferencesReason = "OutdatedReferences"
	// MissingReferencesReason is the reason of the Event that lists the objects that a pod needs, and that are neither
	// reflected nor exist on the provider.
	MissingReferencesReason = "MissingReferences"
	// arrivalGrace delays the Event: configuration is often created together with its pod, and a shorter delay would
	// report normal operation.
	arrivalGrace = 2 * time.Second
	// shownLags limits the number of objects in an Event.
	shownLags = 5
)

// awaitReferences returns an error as long as objects that the containers of the pod read are not up to date on the
// provider. The pod is then reconciled again. The pod must wait because Kubernetes guarantees that containers see all
// changes that were made before they start.
//
// The wait ends when the copies of all objects are up to date (the engine then enqueues the pod), after
// Options.ReferenceTimeout, or when the objects have failed for that long: one broken object must not block pods. An
// Event then lists the objects. awaitReferences makes no API call if all objects are up to date.
func (h *Handler) awaitReferences(w *evaluation.Worker, v *podView, spec document.View) error {
	limit := h.Options().ReferenceTimeout
	if limit <= 0 {
		return nil
	}
	lags := v.scope.Lags(ReferencesOf(spec), v.key)
	if len(lags) == 0 {
		v.state.awaiting = time.Time{}
		return nil
	}
	if err := h.Clients.Reachable(); err != nil {
		v.state.awaiting = time.Time{} // the time of an outage must not count against the limit
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
		h.Events.Warn(v.local, OutdatedReferencesReason, fmt.Sprintf("starting on cluster %s although this is not up to date there: %s. The pod may read an earlier version, or wait for it there;"+
			" recreate the pod once the cause is removed", h.Options().RemoteClusterID, listLags(lags)))
		return nil
	}
	if report := v.state.awaiting.Add(arrivalGrace); report.After(now) {
		next = earlier(next, report)
	} else {
		h.Events.Note(v.local, AwaitingReferencesReason, fmt.Sprintf("not started on cluster %s yet: waiting up to %s until this is up to date there: %s", h.Options().RemoteClusterID, limit, listLags(lags)))
	}
	return &failure.RetryAfter{After: next.Sub(now)}
}

// waitUntil returns the time at which a pod stops waiting for an object. since is the time at which the pod began to
// wait.
func waitUntil(lag queue.Lag, since time.Time, limit time.Duration) time.Time {
	until := since.Add(limit)
	if lag.Failing.IsZero() {
		return until
	}
	return earlier(until, lag.Failing.Add(limit))
}

// earlier returns the earlier of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// listLags lists objects with their errors.
func listLags(lags []queue.Lag) string {
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

// mayStart calls awaitReferences and then warnMissing if the pod in the worker's document starts containers: a new pod,
// a container with another image, or a further ephemeral container.
func (h *Handler) mayStart(ctx context.Context, w *evaluation.Worker, v *podView) error {
	spec := w.Doc.Root().View().Field("spec")
	if v.shadow != nil {
		have, _ := raw.Nested(v.shadow.Object, h.Kind().Copy.Into...).(map[string]any)
		if !pods.StartsContainer(spec, have) {
			return nil
		}
	}
	if err := h.awaitReferences(w, v, spec); err != nil {
		return err
	}
	h.warnMissing(ctx, w, v, spec)
	return nil
}
