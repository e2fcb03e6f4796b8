// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

// eventTries limits the attempts to write the copy of an Event. The limit is acceptable because nothing depends on
// Events, and it is needed because many Events may be impossible to write. With the backoff, the attempts take about
// four minutes.
const eventTries = 20

// ignoredTries limits the attempts for an Event that is shown although a plugin with ignoreFailure has failed. The
// attempts take about two minutes. During this time, the Event is one of the waiting Events of its namespace, which
// WaitingMost limits.
const ignoredTries = 5

// Limits on warnings. Within these limits, warnings are shown at once. The limits bound the load on this cluster's
// API server if a provider floods a namespace with warnings.
const (
	WarningsPerSecond = 5
	WarningsBurst     = 50
	warningDelay      = time.Second
)

// isWarning reports whether an Event has the type Warning.
func isWarning(event *unstructured.Unstructured) bool {
	kind, _ := event.Object["type"].(string)
	return kind == corev1.EventTypeWarning
}

// receive watches the provider's Events in a remote namespace until ctx ends.
func (h *handler) receive(ctx context.Context, in *inbox) {
	if !h.WaitForShared(ctx) {
		return
	}
	if !waitUntilUsed(ctx, in.scope) {
		return
	}
	source := h.ListWatchRemote(informer.Selection{Namespace: in.scope.Remote})
	for ctx.Err() == nil {
		round, cancel := context.WithCancel(ctx)
		in.begin(cancel)
		if h.readCopies(round, in) {
			cache.NewReflectorWithOptions(source, &unstructured.Unstructured{}, in,
				cache.ReflectorOptions{Name: "refract", TypeDescription: h.Kind().Source.String()}).RunWithContext(round)
		}
		cancel()
	}
}

// waitUntilUsed waits until the namespace contains an object that was created for it (see Scope.Used), because Events
// can only be about such objects. It returns false if ctx has ended.
func waitUntilUsed(ctx context.Context, s *engine.Scope) bool {
	select {
	case <-s.Used():
		return true
	default:
		s.SetReady()
	}
	select {
	case <-s.Used():
		return true
	case <-ctx.Done():
		return false
	}
}

// readBackoff is the backoff between attempts to list the copies of Events. No Event is written until an attempt
// succeeds.
var readBackoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: 30 * time.Second}

// readCopies records which Events have copies, and the content of the copies, so that no Event is written again.
func (h *handler) readCopies(ctx context.Context, b *inbox) bool {
	return readBackoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		options := metav1.ListOptions{LabelSelector: labels.Set(h.Ownership()).String(), Limit: 500}
		for {
			var page *unstructured.UnstructuredList
			err := h.Clients.CallLocal(ctx, func(ctx context.Context) (err error) {
				page, err = h.Clients.Local.Resource(h.Kind().Source).Namespace(b.scope.Local).List(ctx, options)
				return err
			})
			if err != nil {
				h.Log().Warn("Cannot list the Events that were already reflected; new Events of the provider are delayed", "namespace", b.scope.Local, "err", err)
				return false, nil
			}
			b.Learn(page.Items)
			if options.Continue = page.GetContinue(); options.Continue == "" {
				return true, nil
			}
		}
	}) == nil
}

// Reconcile implements engine.Handler. It makes the copy of one of the provider's Events equal to the result of the
// plugin chain. This corresponds to Liqo's reflection of Events.
func (h *handler) Reconcile(ctx context.Context, w *evaluation.Worker, s *engine.Scope, key queue.Key) error {
	in := inboxOf(s)
	e := in.open(key.Name)
	if e == nil {
		h.Forget(key)
		return nil
	}
	// The Event was deleted, so its copy is deleted, too, even if the object of the Event is not known.
	if e.gone {
		h.Mutator.Release(s.Remote, key.Name)
		if err := h.takeBack(ctx, w, s, e); err != nil && h.Queue.Tries(key) <= eventTries {
			return err
		}
		in.close(key.Name, e)
		return nil
	}
	about, now := h.involved(s, e.event), h.Clock().Now()
	switch {
	case about == nil || h.Queue.Tries(key) > eventTries:
	case about.waits:
		// The Event is not scheduled here. The method resume of the inbox schedules it when the object is known.
		return nil
	case !about.sure && now.Sub(e.since) < unknownObjectGrace:
		h.schedule.add(key, now.Add(SettlePeriod))
		return nil
	case about.sure && e.copy != 0 && now.Before(e.wrote.Add(Window)):
		h.schedule.add(key, e.wrote.Add(Window))
		return nil
	case about.sure && isWarning(e.event) && in.warnings.TokensAt(now) < 1:
		h.schedule.add(key, now.Add(warningDelay))
		return nil
	case about.sure:
		err := h.show(ctx, w, s, e, about)
		if class, _ := failure.Classify(err); isWarning(e.event) && (err == nil || class.Answered()) {
			// A warning counts against the limit only now, because an Event that is dropped by a plugin causes no load
			// on this cluster's API server.
			in.warnings.AllowN(now, 1)
		}
		if err != nil && h.worthAnotherTry(key, err, about) {
			return err
		}
		if err == nil && w.IgnoredPluginFailure() && h.Queue.Tries(key) < ignoredTries {
			in.record(key.Name, e)
			return nil
		}
		if err == nil {
			// The attempts are forgotten, so that the next change to the Event starts with short delays and the full
			// number of attempts.
			h.Forget(key)
		}
		in.close(key.Name, e)
		return err
	}
	h.Forget(key)
	in.close(key.Name, e)
	return nil
}

// worthAnotherTry reports whether an Event is tried again after an error. It reports the error in a single Event on the
// object, which stands for all Events that cannot be shown.
func (h *handler) worthAnotherTry(key queue.Key, err error, about *involved) bool {
	class, reason := failure.Classify(err)
	if class == failure.Unreachable || class == failure.Conflict || class.Answered() && !refusedForGood(err) && h.Queue.Tries(key) < eventTries {
		return true
	}
	// The name is removed, so that the text is the same for all Events and is reported only once.
	text := strings.ReplaceAll(err.Error(), key.Name, "…")
	h.Events.Warn(about.object, reason, fmt.Sprintf("cluster %s: Events about this object cannot be shown here: %s", h.Options().RemoteClusterID, text))
	return class == failure.Plugin
}
