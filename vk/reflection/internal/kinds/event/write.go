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
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// eventExpiry is the age of an Event whose deletion may be an expiry: API servers keep Events for an hour unless
// configured otherwise, and the clocks differ.
const eventExpiry = 50 * time.Minute

// eventFields are the fields that change while an Event repeats itself.
var eventFields = []string{"action", "count", "firstTimestamp", "lastTimestamp", "message", "reason", "series", "type"}

// eventHash returns the hash of eventFields, which is never 0. Nulls and empty texts count as absent.
func eventHash(event document.View) uint64 {
	sum := uint64(1)
	for _, key := range eventFields {
		if field := event.Field(key); !emptyField(field) {
			sum += engine.FieldHash(key, field)
		}
	}
	return max(sum, 1)
}

func emptyField(field document.View) bool {
	text, isText := field.Text()
	return field.Kind() == document.Null || !field.Exists() || isText && text == ""
}

func rawEventHash(event *unstructured.Unstructured) uint64 {
	return eventHash(document.Of(event.Object))
}

// show makes the copy equal to the mutated Event, and records the write in e.
func (h *handler) show(ctx context.Context, w *engine.Worker, s *engine.Scope, e *entry, about *involved) error {
	decided, err := h.Kind().Policy.Decide(raw.Annotations(e.event.Object))
	if err != nil {
		return err
	}
	if !decided.Cross {
		return h.takeBack(ctx, w, s, e)
	}
	root := maps.Clone(s.Context(host.Incoming))
	root["involved"] = about.reference()
	event, _ := engine.CutMessages(engine.EscapeTexts(e.event.Object)).(map[string]any)
	outcome, err := h.Mutate(ctx, w, host.Incoming, s.LocalNamespace(), event, root)
	if err != nil {
		return err
	}
	h.Warnings(w, about.object, outcome)
	if outcome.Skipped {
		return h.takeBack(ctx, w, s, e)
	}
	x, err := h.Desired(w, s, e.event)
	if err != nil {
		return err
	}
	hash := eventHash(x.View)
	if hash == e.copy {
		return nil
	}
	return h.writeCopy(ctx, w, x, e, hash)
}

// reference returns the reference of an Event in this cluster to its object.
func (v *involved) reference() map[string]any {
	return map[string]any{
		"apiVersion": v.kind.Source.GroupVersion().String(), "kind": v.kind.SourceKind().Kind,
		"namespace": v.object.GetNamespace(), "name": v.object.GetName(),
		"uid": string(v.object.GetUID()), "resourceVersion": v.object.GetResourceVersion(),
	}
}

// writeCopy patches the copy, or creates it if it no longer exists, because Events expire. If the name belongs to an
// object of another client, the copy gets another name.
func (h *handler) writeCopy(ctx context.Context, w *engine.Worker, x *engine.Desired, e *entry, hash uint64) error {
	for range 4 { // patch, create, adopt, create under the other name
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
			w.Wrote(engine.Back)
			return nil
		case e.copy != 0 && (apierrors.IsNotFound(err) || apierrors.IsConflict(err)):
			e.copy = 0
		case e.copy == 0 && apierrors.IsAlreadyExists(err):
			found, err := h.eventHere(ctx, x.Namespace, x.Name)
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return err
			case h.Managed(found):
				if e.copy = rawEventHash(found); e.copy == hash {
					return nil
				}
			case e.other:
				return nil // both names are taken, so the Event is not shown
			default:
				e.other = true
			}
		default:
			return err
		}
	}
	return &engine.RetryAfter{After: engine.Soon}
}

// CopyName returns the name of an Event's copy: the same name or, if another client has taken it, the other one.
func (h *handler) CopyName(name string, other bool) string {
	if !other {
		return name
	}
	suffix := h.otherSuffix()
	return strings.TrimRight(name[:min(len(name), 253-len(suffix))], ".-") + suffix
}

func (h *handler) otherSuffix() string {
	return fmt.Sprintf(".%08x", uint32(document.Hash(h.Options().RemoteClusterID)))
}

func (h *handler) eventsHere(namespace string) dynamic.ResourceInterface {
	return h.Local().Resource(h.Kind().Source).Namespace(namespace)
}

func (h *handler) eventHere(ctx context.Context, namespace, name string) (found *unstructured.Unstructured, err error) {
	err = h.CallLocal(ctx, func(ctx context.Context) (err error) {
		found, err = h.eventsHere(namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	return found, err
}

func (h *handler) createEvent(ctx context.Context, w *engine.Worker, x *engine.Desired) error {
	object := x.Build(w, nil)
	err := h.CallLocal(ctx, func(ctx context.Context) error {
		_, err := h.eventsHere(x.Namespace).Create(ctx, object, metav1.CreateOptions{FieldManager: wire.ReflectionFieldManager, FieldValidation: engine.FieldValidation})
		return err
	})
	if err != nil {
		return fmt.Errorf("creating Event %s/%s, %w", x.Namespace, x.Name, err)
	}
	h.Counted("create", "local")
	return nil
}

// patchEvent patches the changes into the copy, with our labels as a precondition.
func (h *handler) patchEvent(ctx context.Context, x *engine.Desired) error {
	var patch jsonpatch.Patch
	for key, value := range h.Ownership() {
		patch.Test("/metadata/labels"+jsonpatch.Pointer(key), value)
	}
	for _, key := range eventFields {
		patch.Add("/"+key, x.View.Field(key).Value())
	}
	if _, err := h.Patch(ctx, h.Kind().Source, Name, engine.Key{Namespace: x.Namespace, Name: x.Name}, patch); err != nil {
		return err
	}
	h.Counted("patch", "local")
	return nil
}

// takeBack deletes the copy, if there is one. It deletes no object of another client.
func (h *handler) takeBack(ctx context.Context, w *engine.Worker, s *engine.Scope, e *entry) error {
	if e.copy == 0 {
		return nil
	}
	name := h.CopyName(e.event.GetName(), e.other)
	found, err := h.eventHere(ctx, s.LocalNamespace(), name)
	if err == nil && h.Managed(found) {
		uid := found.GetUID()
		err = h.CallLocal(ctx, func(ctx context.Context) error {
			return h.eventsHere(s.LocalNamespace()).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Event %s/%s, %w", s.LocalNamespace(), name, err)
	}
	if err == nil {
		h.Counted("delete", "local")
		w.Deleted(engine.Back)
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
