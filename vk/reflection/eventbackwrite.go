// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

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
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// eventExpiry is the age from which on nobody can tell whether an Event was deleted or has expired: API servers keep them for
// an hour unless told otherwise, and the clocks differ.
const eventExpiry = 50 * time.Minute

// eventFields are those that change while an Event repeats itself.
var eventFields = []string{"action", "count", "firstTimestamp", "lastTimestamp", "message", "reason", "series", "type"}

// eventHash is that of eventFields, never 0. Nulls and empty texts are the same as nothing.
func eventHash(event document.View) uint64 {
	sum := uint64(1)
	for _, key := range eventFields {
		if field := event.Field(key); !emptyField(field) {
			sum += fieldHash(key, field)
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

// show makes the copy say what the Event does, and notes in e what was written.
func (r *reflector) show(ctx context.Context, w *worker, t *extension, c *copies, e *entry, about *involved) error {
	decided, err := r.kind.Policy.Decide(raw.Annotations(e.event.Object))
	if err != nil {
		return err
	}
	if !decided.Cross {
		return r.takeBack(ctx, w, t, e)
	}
	root := maps.Clone(r.m.context(t, host.Incoming))
	root["involved"] = about.reference()
	event, _ := cutMessages(e.event.Object).(map[string]any)
	outcome, err := r.mutate(ctx, w, host.Incoming, t.local, event, root)
	if err != nil {
		return err
	}
	r.warnings(w, about.object, outcome)
	if outcome.Skipped {
		return r.takeBack(ctx, w, t, e)
	}
	x, err := r.want(w, t, c, e.event)
	if err != nil {
		return err
	}
	hash := eventHash(x.view)
	if hash == e.copy {
		return nil
	}
	return r.writeCopy(ctx, w, x, e, hash)
}

// reference is what an Event here says of the object that it is about.
func (v *involved) reference() map[string]any {
	return map[string]any{
		"apiVersion": v.kind.Source.GroupVersion().String(), "kind": v.kind.sourceKind(),
		"namespace": v.object.GetNamespace(), "name": v.object.GetName(),
		"uid": string(v.object.GetUID()), "resourceVersion": v.object.GetResourceVersion(),
	}
}

// writeCopy patches the copy, or creates it where there is none any more: they expire. A name that is taken is left to whom it
// belongs, and the copy gets another.
func (r *reflector) writeCopy(ctx context.Context, w *worker, x *wanted, e *entry, hash uint64) error {
	for range 4 { // patch, create, adopt, create under the other name
		x.name, x.namespace = r.copyName(x.key.Name, e.other), x.key.Namespace
		var err error
		if e.copy != 0 {
			err = r.patchEvent(ctx, x)
		} else {
			err = r.createEvent(ctx, w, x)
		}
		switch {
		case err == nil:
			e.copy, e.wrote, w.result = hash, r.m.options.Clock.Now(), "written"
			return nil
		case e.copy != 0 && (apierrors.IsNotFound(err) || apierrors.IsConflict(err)):
			e.copy = 0
		case e.copy == 0 && apierrors.IsAlreadyExists(err):
			found, err := r.eventHere(ctx, x.namespace, x.name)
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return err
			case r.managed(found):
				if e.copy = rawEventHash(found); e.copy == hash {
					return nil
				}
			case e.other:
				return nil // both names are taken: somebody does not want it shown
			default:
				e.other = true
			}
		default:
			return err
		}
	}
	return &retryLater{soon}
}

// copyName is the name of an Event's copy: the same, or the one for which it is not taken by somebody else.
func (r *reflector) copyName(name string, other bool) string {
	if !other {
		return name
	}
	suffix := r.otherSuffix()
	return strings.TrimRight(name[:min(len(name), 253-len(suffix))], ".-") + suffix
}

func (r *reflector) otherSuffix() string {
	return fmt.Sprintf(".%08x", uint32(document.Hash(r.m.options.RemoteClusterID)))
}

func (r *reflector) eventsHere(namespace string) dynamic.ResourceInterface {
	return r.m.local.Resource(r.kind.Source).Namespace(namespace)
}

func (r *reflector) eventHere(ctx context.Context, namespace, name string) (found *unstructured.Unstructured, err error) {
	err = r.m.callLocal(ctx, func(ctx context.Context) (err error) {
		found, err = r.eventsHere(namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	return found, err
}

func (r *reflector) createEvent(ctx context.Context, w *worker, x *wanted) error {
	object := x.build(w, nil)
	err := r.m.callLocal(ctx, func(ctx context.Context) error {
		_, err := r.eventsHere(x.namespace).Create(ctx, object, metav1.CreateOptions{FieldManager: wire.ReflectionFieldManager, FieldValidation: fieldValidation})
		return err
	})
	if err != nil {
		return fmt.Errorf("creating Event %s/%s, %w", x.namespace, x.name, err)
	}
	r.counted("create", "local")
	return nil
}

// patchEvent says what has changed, to the copy and to nothing else that may have its name by now.
func (r *reflector) patchEvent(ctx context.Context, x *wanted) error {
	var patch jsonpatch.Patch
	for key, value := range r.owned {
		patch.Test("/metadata/labels"+jsonpatch.Pointer(key), value)
	}
	for _, key := range eventFields {
		patch.Add("/"+key, x.view.Field(key).Value())
	}
	if _, err := r.m.patch(ctx, r.kind.Source, Key{Namespace: x.namespace, Name: x.name}, patch); err != nil {
		return err
	}
	r.counted("patch", "local")
	return nil
}

// takeBack deletes the copy, if there is one, and nothing else.
func (r *reflector) takeBack(ctx context.Context, w *worker, t *extension, e *entry) error {
	if e.copy == 0 {
		return nil
	}
	name := r.copyName(e.event.GetName(), e.other)
	found, err := r.eventHere(ctx, t.local, name)
	if err == nil && r.managed(found) {
		uid := found.GetUID()
		err = r.m.callLocal(ctx, func(ctx context.Context) error {
			return r.eventsHere(t.local).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Event %s/%s, %w", t.local, name, err)
	}
	if err == nil {
		r.counted("delete", "local")
		w.result = "deleted"
	}
	e.copy = 0
	return nil
}

// refusedForGood tells what the API server will not take however often it is asked.
func refusedForGood(err error) bool {
	status := apierrors.APIStatus(nil)
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		errors.As(err, &status) && status.Status().Code == http.StatusUnprocessableEntity
}
