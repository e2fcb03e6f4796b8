// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/vk/reflection/internal/clients"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// eventExpiryAge is the age of an Event whose deletion may be an expiry: API servers keep Events for an hour unless
// configured otherwise, and the clocks differ.
const eventExpiryAge = 50 * time.Minute

// eventFields are the fields that may change when an Event is repeated.
var eventFields = []string{"action", "count", "firstTimestamp", "lastTimestamp", "message", "reason", "series", "type"}

// eventHash returns the hash of the eventFields, which is never 0. Null and empty strings count as absent.
func eventHash(event document.View) uint64 {
	sum := uint64(1)
	for _, key := range eventFields {
		if field := event.Field(key); !emptyField(field) {
			sum += content.FieldHash(key, field)
		}
	}
	return max(sum, 1)
}

// emptyField reports whether a field is absent, null, or an empty string.
func emptyField(field document.View) bool {
	text, isText := field.Text()
	return field.Kind() == document.Null || !field.Exists() || isText && text == ""
}

// rawEventHash returns the eventHash of an Event before any plugin has mutated it.
func rawEventHash(event *unstructured.Unstructured) uint64 {
	return eventHash(document.Of(event.Object))
}

// show makes the copy equal to the mutated Event, and records the write in the entry e.
func (h *handler) show(ctx context.Context, w *evaluation.Worker, s *engine.Scope, e *entry, about *involved) error {
	decided, err := h.Kind().Policy.Decide(raw.Annotations(e.event.Object))
	if err != nil {
		return err
	}
	if !decided.Cross {
		h.Mutator.Release(s.Remote, e.event.GetName())
		return h.takeBack(ctx, w, s, e)
	}
	root := maps.Clone(s.Context(host.Incoming))
	root["involved"] = about.reference()
	event, _ := content.CutMessages(content.EscapeTexts(e.event.Object)).(map[string]any)
	in := &mutation.Input{Object: event, Context: root}
	outcome, err := h.Mutator.Mutate(ctx, w, host.Incoming, s.Local, about.object.Object, in)
	if err != nil {
		return err
	}
	h.Mutator.Warnings(w, about.object, outcome)
	if outcome.Skipped {
		if e.copy != 0 {
			if err := h.MayRemove(ctx, w, host.Incoming, s, about.object, in); err != nil {
				return err
			}
		}
		return h.takeBack(ctx, w, s, e)
	}
	x, err := h.Copies.Desired(w, s.Namespace, e.event)
	if err != nil {
		return err
	}
	hash := eventHash(x.View)
	if hash == e.copy {
		return nil
	}
	return h.writeCopy(ctx, w, x, e, hash)
}

// reference returns the reference to the object for an Event in this cluster.
func (v *involved) reference() map[string]any {
	return map[string]any{
		"apiVersion": v.kind.Source.GroupVersion().String(), "kind": v.kind.SourceKind().Kind,
		"namespace": v.object.GetNamespace(), "name": v.object.GetName(),
		"uid": string(v.object.GetUID()), "resourceVersion": v.object.GetResourceVersion(),
	}
}

// writeCopy patches the copy, or creates it if it no longer exists, because Events expire. If the name belongs to an
// object of another client, the copy gets another name.
func (h *handler) writeCopy(ctx context.Context, w *evaluation.Worker, x *copies.Desired, e *entry, hash uint64) error {
	// At most four steps are needed: patch the copy, create it, adopt an existing copy, and create the copy under its
	// alternative name.
	for range 4 {
		x.Name, x.Namespace = h.CopyName(x.Key.Name, e.other), x.Key.Namespace
		var err error
		if e.copy != 0 {
			err = h.patchEvent(ctx, x)
		} else {
			err = h.createEvent(ctx, w, x)
		}
		switch {
		case err == nil:
			e.copy, e.wrote = hash, h.Clock().Now()
			w.Wrote(evaluation.Back)
			return nil
		case e.copy != 0 && (apierrors.IsNotFound(err) || apierrors.IsConflict(err)):
			e.copy = 0
		case e.copy == 0 && apierrors.IsAlreadyExists(err):
			found, err := h.eventHere(ctx, x.Namespace, x.Name)
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return err
			case h.Copies.Managed(found):
				if e.copy = rawEventHash(found); e.copy == hash {
					return nil
				}
			case e.other:
				// Other clients have taken both names, so the Event is not shown.
				return nil
			default:
				e.other = true
			}
		default:
			return err
		}
	}
	return &failure.RetryAfter{After: copies.Soon}
}

// CopyName returns the name of an Event's copy. This is the name of the Event or, if other is true because another
// client has taken this name, the name with a suffix.
func (h *handler) CopyName(name string, other bool) string {
	if !other {
		return name
	}
	suffix := h.otherSuffix()
	return strings.TrimRight(name[:min(len(name), 253-len(suffix))], ".-") + suffix
}

// otherSuffix returns the suffix of a copy's alternative name. It differs for each provider.
func (h *handler) otherSuffix() string {
	return fmt.Sprintf(".%08x", uint32(document.Hash(h.Options().RemoteClusterID)))
}

// eventsHere returns a client for the Events in a namespace of this cluster.
func (h *handler) eventsHere(namespace string) dynamic.ResourceInterface {
	return h.Clients.Local.Resource(h.Kind().Source).Namespace(namespace)
}

// eventHere gets an Event of this cluster.
func (h *handler) eventHere(ctx context.Context, namespace, name string) (found *unstructured.Unstructured, err error) {
	err = h.Clients.CallLocal(ctx, func(ctx context.Context) (err error) {
		found, err = h.eventsHere(namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	return found, err
}

// createEvent creates the copy of an Event.
func (h *handler) createEvent(ctx context.Context, w *evaluation.Worker, x *copies.Desired) error {
	object := x.Build(w, nil)
	err := h.Clients.CallLocal(ctx, func(ctx context.Context) error {
		_, err := h.eventsHere(x.Namespace).Create(ctx, object, metav1.CreateOptions{FieldManager: wire.ReflectionFieldManager, FieldValidation: clients.FieldValidation})
		return err
	})
	if err != nil {
		return fmt.Errorf("creating Event %s/%s, %w", x.Namespace, x.Name, err)
	}
	h.Writes.Count("create", "local")
	return nil
}

// patchEvent patches the copy. The patch fails unless the copy has our labels.
func (h *handler) patchEvent(ctx context.Context, x *copies.Desired) error {
	var patch jsonpatch.Patch
	for key, value := range h.Ownership() {
		patch.Test("/metadata/labels"+jsonpatch.Pointer(key), value)
	}
	for _, key := range eventFields {
		patch.Add("/"+key, x.View.Field(key).Value())
	}
	if _, err := h.Clients.PatchLocal(ctx, h.Kind().Source, Name, queue.Key{Namespace: x.Namespace, Name: x.Name}, patch); err != nil {
		return err
	}
	h.Writes.Count("patch", "local")
	return nil
}

// takeBack deletes the copy of an Event, if there is one. An object of another client that has the same name is not
// deleted.
func (h *handler) takeBack(ctx context.Context, w *evaluation.Worker, s *engine.Scope, e *entry) error {
	if e.copy == 0 {
		return nil
	}
	name := h.CopyName(e.event.GetName(), e.other)
	found, err := h.eventHere(ctx, s.Local, name)
	if err == nil && h.Copies.Managed(found) {
		uid := found.GetUID()
		err = h.Clients.CallLocal(ctx, func(ctx context.Context) error {
			return h.eventsHere(s.Local).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Event %s/%s, %w", s.Local, name, err)
	}
	if err == nil {
		h.Writes.Count("delete", "local")
		w.Deleted(evaluation.Back)
	}
	e.copy = 0
	return nil
}

// refusedForGood reports whether the API server will refuse the write on every retry.
func refusedForGood(err error) bool {
	status := apierrors.APIStatus(nil)
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		errors.As(err, &status) && status.Status().Code == http.StatusUnprocessableEntity
}
