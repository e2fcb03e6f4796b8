// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

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

	"github.com/refract-project/refract/vk/reflection/internal/informer"
)

// Events come the other way: who looks at an object here sees what happens to it over there. They are history rather than
// state, so they are treated unlike other kinds. What was shown stays as it was mutated. None is kept in memory. A copy is
// written when the Event says something new, and never for being compared again.
//
//	watch of the remote namespace ─▶ inbox ─▶ about whom? ─▶ schedule ─▶ queue ─▶ policy ─▶ chain ─▶ comparison ─▶ create or patch
//
// The reporter (internal/report) is another matter: it writes Events of our own.

// eventTries is how often the copy of an Event is tried: nothing depends on it, and of those that cannot be written there may
// be many. With the backoff that is about four minutes.
const eventTries = 20

// Warnings are shown at once, as long as there are not many: a provider that floods a namespace with them gets this much of
// this cluster's API server.
const (
	warningsPerSecond = 5
	warningsBurst     = 50
	warningWait       = time.Second
)

func isWarning(event *unstructured.Unstructured) bool {
	kind, _ := event.Object["type"].(string)
	return kind == corev1.EventTypeWarning
}

// receive takes in the provider's Events about a namespace until ctx ends.
func (r *reflector) receive(ctx context.Context, c *copies) {
	if !cache.WaitFor(ctx, "", r.m.sharedCaches(r.kind)...) {
		return
	}
	source := informer.ListWatch(r.m.remote, r.kind.Source, informer.Selection{Namespace: c.inbox.t.remote}, r.m.breaker)
	for ctx.Err() == nil {
		round, cancel := context.WithCancel(ctx)
		c.inbox.begin(cancel)
		if r.readCopies(round, c.inbox) {
			cache.NewReflectorWithOptions(source, &unstructured.Unstructured{}, c.inbox,
				cache.ReflectorOptions{Name: "refract", TypeDescription: r.kind.Source.String()}).RunWithContext(round)
		}
		cancel()
	}
}

// readCopies learns which Events have copies, and what these say, so that none is written again.
func (r *reflector) readCopies(ctx context.Context, b *inbox) bool {
	retry := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: backoffMost}
	return retry.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		options := metav1.ListOptions{LabelSelector: labels.Set(r.owned).String(), Limit: 500}
		for {
			var page *unstructured.UnstructuredList
			err := r.m.callLocal(ctx, func(ctx context.Context) (err error) {
				page, err = r.m.local.Resource(r.kind.Source).Namespace(b.t.local).List(ctx, options)
				return err
			})
			if err != nil {
				r.m.log.Warn("Events of the provider are not shown yet: those that are cannot be listed", "namespace", b.t.local, "err", err)
				return false, nil
			}
			b.learn(page.Items)
			if options.Continue = page.GetContinue(); options.Continue == "" {
				return true, nil
			}
		}
	}) == nil
}

// reconcileEvent makes the copy of one of the provider's Events what the chain says. (Liqo: event reflection.)
func (r *reflector) reconcileEvent(ctx context.Context, w *worker, key Key) error {
	t := r.m.extension(key.Namespace)
	if t == nil {
		return nil
	}
	c := t.of(r.kind.Name)
	if c == nil {
		return nil
	}
	e := c.inbox.open(key.Name)
	if e == nil {
		return nil
	}
	if e.gone { // whatever it was about
		if err := r.takeBack(ctx, w, t, e); err != nil && r.queue.NumRequeues(key) <= eventTries {
			return err
		}
		c.inbox.close(key.Name, e)
		return nil
	}
	about, now := r.involved(t, e.event), r.m.options.Clock.Now()
	switch {
	case about == nil || r.queue.NumRequeues(key) > eventTries:
	case about.waits:
		return nil // until resume
	case !about.sure && now.Sub(e.since) < eventTrial:
		r.schedule.add(key, now.Add(eventSettle))
		return nil
	case about.sure && e.copy != 0 && now.Before(e.wrote.Add(eventWindow)):
		r.schedule.add(key, e.wrote.Add(eventWindow))
		return nil
	case about.sure && isWarning(e.event) && t.warnings.TokensAt(now) < 1:
		r.schedule.add(key, now.Add(warningWait))
		return nil
	case about.sure:
		err := r.show(ctx, w, t, c, e, about)
		if class, _ := classify(err); isWarning(e.event) && (err == nil || class == classRefused) {
			t.warnings.AllowN(now, 1) // what a plugin stops costs this cluster's API server nothing
		}
		if err != nil && r.worthAnotherTry(key, err, about) {
			return err
		}
		c.inbox.close(key.Name, e)
		return err
	}
	c.inbox.close(key.Name, e)
	return nil
}

// worthAnotherTry decides about an error. What cannot be shown is told on the object, once however many Events it concerns.
func (r *reflector) worthAnotherTry(key Key, err error, about *involved) bool {
	class, reason := classify(err)
	if class == classUnreachable || class == classConflict || class == classRefused && !refusedForGood(err) && r.queue.NumRequeues(key) < eventTries {
		return true
	}
	text := strings.ReplaceAll(err.Error(), key.Name, "…") // the same of all of them
	r.m.events.Warn(r.kind.Name, about.object, reason, fmt.Sprintf("cluster %s: Events about this object cannot be shown here: %s", r.m.options.RemoteClusterID, text))
	return false
}
