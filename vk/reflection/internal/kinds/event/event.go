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
	"github.com/refract-project/refract/vk/reflection/internal/informer"
)

// eventTries limits the attempts to write the copy of an Event. Nothing depends on an Event, and many may be impossible
// to write. With the backoff, the attempts take about four minutes.
const eventTries = 20

// ignoredTries limits the attempts for an Event that is shown although a plugin with ignoreFailure failed, to about two
// minutes. Until then the Event counts as waiting, and a namespace has at most WaitingMost of these.
const ignoredTries = 5

// Limits on warnings. Within them, warnings are shown at once. They bound the load on this cluster's API server from a
// provider that floods a namespace with warnings.
const (
	WarningsPerSecond = 5
	WarningsBurst     = 50
	warningWait       = time.Second
)

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
	source := h.ListWatchRemote(informer.Selection{Namespace: in.scope.RemoteNamespace()})
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

// waitUntilUsed waits until the namespace has an object of its own, as Events can only be about such objects. It
// returns false if ctx has ended.
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

// readCopies records which Events have copies, and their content, so that no Event is written again.
func (h *handler) readCopies(ctx context.Context, b *inbox) bool {
	retry := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: 30 * time.Second}
	return retry.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		options := metav1.ListOptions{LabelSelector: labels.Set(h.Ownership()).String(), Limit: 500}
		for {
			var page *unstructured.UnstructuredList
			err := h.CallLocal(ctx, func(ctx context.Context) (err error) {
				page, err = h.Local().Resource(h.Kind().Source).Namespace(b.scope.LocalNamespace()).List(ctx, options)
				return err
			})
			if err != nil {
				h.Log().Warn("Cannot list the Events that were already reflected; new Events of the provider are delayed", "namespace", b.scope.LocalNamespace(), "err", err)
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
// chain. (Liqo: event reflection.)
func (h *handler) Reconcile(ctx context.Context, w *engine.Worker, s *engine.Scope, key engine.Key) error {
	in := inboxOf(s)
	e := in.open(key.Name)
	if e == nil {
		h.Forget(key)
		return nil
	}
	if e.gone { // regardless of its object
		if err := h.takeBack(ctx, w, s, e); err != nil && h.Tries(key) <= eventTries {
			return err
		}
		in.close(key.Name, e)
		return nil
	}
	about, now := h.involved(s, e.event), h.Clock().Now()
	switch {
	case about == nil || h.Tries(key) > eventTries:
	case about.waits:
		return nil // resume schedules the Event
	case !about.sure && now.Sub(e.since) < eventTrial:
		h.schedule.add(key, now.Add(Settle))
		return nil
	case about.sure && e.copy != 0 && now.Before(e.wrote.Add(Window)):
		h.schedule.add(key, e.wrote.Add(Window))
		return nil
	case about.sure && isWarning(e.event) && in.warnings.TokensAt(now) < 1:
		h.schedule.add(key, now.Add(warningWait))
		return nil
	case about.sure:
		err := h.show(ctx, w, s, e, about)
		if class, _ := engine.Classify(err); isWarning(e.event) && (err == nil || class.Answered()) {
			// An Event that a plugin stops causes no load on this cluster's API server, so it is not counted.
			in.warnings.AllowN(now, 1)
		}
		if err != nil && h.worthAnotherTry(key, err, about) {
			return err
		}
		if err == nil && w.IgnoredPluginFailure() && h.Tries(key) < ignoredTries {
			in.record(key.Name, e)
			return nil
		}
		if err == nil {
			h.Forget(key) // The next change of the Event begins with short delays and all of its tries.
		}
		in.close(key.Name, e)
		return err
	}
	h.Forget(key)
	in.close(key.Name, e)
	return nil
}

// worthAnotherTry reports whether an Event is tried again after an error. A single Event on the object reports all
// Events that cannot be shown.
func (h *handler) worthAnotherTry(key engine.Key, err error, about *involved) bool {
	class, reason := engine.Classify(err)
	if class == engine.Unreachable || class == engine.Conflict || class.Answered() && !refusedForGood(err) && h.Tries(key) < eventTries {
		return true
	}
	text := strings.ReplaceAll(err.Error(), key.Name, "…") // makes the text equal for all Events
	h.Warn(about.object, reason, fmt.Sprintf("cluster %s: Events about this object cannot be shown here: %s", h.Options().RemoteClusterID, text))
	return class == engine.Plugin
}
