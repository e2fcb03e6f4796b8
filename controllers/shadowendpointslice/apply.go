// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowendpointslice

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/asked"
	"github.com/refract-project/refract/controllers/internal/ownedfields"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/shadows"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// errForeign is of EndpointSlices that stand where ours should.
var errForeign = report.Errorf(report.Foreign, "an EndpointSlice of this name exists that is not ours")

// refusal is what of a slice still differed right after it was written: the
// API server knows better. It is not sent a second time before until.
type refusal struct {
	slice types.UID
	patch string
	until time.Time
}

// apply makes the EndpointSlice what is desired, with at most one write, and
// none when it is so already.
func (c *Controller) apply(ctx context.Context, shadow, desired *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(shadow)
	actual := newSlice()
	err := c.client.Get(ctx, key, actual)
	switch {
	case apierrors.IsNotFound(err):
		return c.create(ctx, shadow, desired)
	case err != nil:
		return fmt.Errorf("getting EndpointSlice %s, %w", key, err)
	}
	if actual, err = shadows.Whole(ctx, c.uncached, actual, contentFields...); err != nil || actual == nil {
		return err // of one that is gone the event comes
	}
	return c.update(ctx, shadow, desired, actual)
}

func (c *Controller) create(ctx context.Context, shadow, desired *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(shadow)
	if err := c.brake.MayCreate(ctx, shadow, createAction); err != nil {
		return err
	}
	// The client puts what the server made of it into the object it is given.
	created := &unstructured.Unstructured{Object: maps.Clone(desired.Object)}
	err := c.client.Create(ctx, created, client.FieldOwner(wire.ShadowEndpointSliceFieldManager))
	switch {
	case err == nil:
		c.brake.Created(shadow)
		c.settle(shadow, desired, created)
		return nil
	case apierrors.IsAlreadyExists(err):
		return c.meet(ctx, shadow, desired)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	}
	c.report.Warn(shadow, failedCreateReason, createAction, "creating the EndpointSlice: "+err.Error())
	err = fmt.Errorf("creating EndpointSlice %s, %w", key, err)
	if apierrors.IsInvalid(err) { // which admission of this cluster may have caused
		return report.Later(err, c.invalid.Next(key, textOf(desired.Object)))
	}
	return err
}

// meet handles a slice that exists though the cache, which holds only slices
// with our label, does not know it.
func (c *Controller) meet(ctx context.Context, shadow, desired *unstructured.Unstructured) error {
	actual := newSlice()
	if err := c.uncached.Get(ctx, client.ObjectKeyFromObject(shadow), actual); err != nil {
		return fmt.Errorf("getting EndpointSlice %s, which exists already, %w", client.ObjectKeyFromObject(shadow), err)
	}
	actual, err := shadows.Whole(ctx, c.uncached, actual, contentFields...)
	if err != nil || actual == nil {
		return err
	}
	return c.update(ctx, shadow, desired, actual)
}

func (c *Controller) update(ctx context.Context, shadow, desired, actual *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(shadow)
	switch {
	case !metav1.IsControlledBy(actual, shadow) && kind.OwnerOf(actual) != nil:
		if err := c.endPredecessor(ctx, actual); err != nil {
			return err
		}
		return fmt.Errorf("waiting for the deletion of EndpointSlice %s, which was made of an earlier ShadowEndpointSlice of this name", key)
	case !metav1.IsControlledBy(actual, shadow):
		c.report.Warn(shadow, failedCreateReason, createAction, fmt.Sprintf(
			"an EndpointSlice %s exists that does not belong to this ShadowEndpointSlice; it was left unchanged: delete or rename it", key))
		return fmt.Errorf("creating EndpointSlice %s, %w", key, errForeign)
	case actual.GetDeletionTimestamp() != nil:
		return nil // the Event of its deletion brings us back here
	}
	changes := difference(desired, actual)
	if len(changes) == 0 {
		c.accepted(key)
		return nil
	}
	if last, ok := c.refused.Get(key); ok && last.slice == actual.GetUID() && last.patch == changes.String() && time.Now().Before(last.until) {
		return nil
	}
	return c.patch(ctx, shadow, desired, actual, changes)
}

func (c *Controller) patch(ctx context.Context, shadow, desired, actual *unstructured.Unstructured, changes jsonpatch.Patch) error {
	key := client.ObjectKeyFromObject(shadow)
	content, err := runtime.Encode(unstructured.UnstructuredJSONScheme, desired)
	if err != nil {
		return fmt.Errorf("encoding EndpointSlice %s, %w", key, err)
	}
	if err := c.brake.MayChange(ctx, shadow, updateAction, string(content), changes); err != nil {
		return err
	}
	patch, err := changes.For(actual.GetUID())
	if err != nil {
		return err
	}
	written := newSlice()
	written.SetNamespace(key.Namespace)
	written.SetName(key.Name)
	err = c.client.Patch(ctx, written, patch, client.FieldOwner(wire.ShadowEndpointSliceFieldManager))
	switch {
	case err == nil:
		c.brake.Changed(shadow, string(content), changes)
		c.settle(shadow, desired, written)
		return nil
	case jsonpatch.IsRejected(err):
		wait := c.refuseUntil(key, actual, changes)
		c.report.Warn(shadow, failedUpdateReason, updateAction, fmt.Sprintf(
			"updating the EndpointSlice: %s; correct the ShadowEndpointSlice, or delete the EndpointSlice to recreate it", err))
		return report.Later(fmt.Errorf("updating EndpointSlice %s, %w", key, err), wait)
	case apierrors.IsForbidden(err):
		c.report.Warn(shadow, failedUpdateReason, updateAction, "updating the EndpointSlice: "+err.Error())
	}
	return fmt.Errorf("updating EndpointSlice %s, %w", key, err)
}

// settle remembers what the server made different of what was written.
func (c *Controller) settle(shadow, desired, written *unstructured.Unstructured) {
	key := client.ObjectKeyFromObject(shadow)
	rest := difference(desired, written)
	if len(rest) == 0 {
		c.accepted(key)
		return
	}
	c.refuseUntil(key, written, rest)
	c.report.Warn(shadow, failedUpdateReason, updateAction,
		"writing the EndpointSlice: the API server or a webhook of this cluster modified the EndpointSlice on write; differing: "+rest.String())
}

// refuseUntil remembers that changes of a slice were refused, and returns after which time to try them again.
func (c *Controller) refuseUntil(key types.NamespacedName, slice *unstructured.Unstructured, changes jsonpatch.Patch) time.Duration {
	wait := c.invalid.Next(key, string(slice.GetUID())+changes.String())
	c.refused.Set(key, refusal{slice.GetUID(), changes.String(), time.Now().Add(wait)})
	return wait
}

// accepted forgets refusals of a slice.
func (c *Controller) accepted(key types.NamespacedName) {
	c.refused.Drop(key)
	c.invalid.Drop(key)
}

// difference returns what must change in actual. What is asked for as before is left as others have changed it: see package asked. Of a slice
// without a record every field is compared, since endpoints must not stay what they were.
func difference(desired, actual *unstructured.Unstructured) jsonpatch.Patch {
	owned := sync.OnceValue(func() ownedfields.Metadata {
		return ownedfields.Of(actual.GetManagedFields(), wire.ShadowEndpointSliceFieldManager)
	})
	ownsLabel := func(key string) bool { return owned().OwnsLabel(key) }
	ownsAnnotation := func(key string) bool { return key != asked.Annotation && owned().OwnsAnnotation(key) }
	labels, annotations := actual.GetLabels(), actual.GetAnnotations()
	last, record := asked.Read(annotations), desired.GetAnnotations()[asked.Annotation]

	patch := jsonpatch.Strings("/metadata/labels", labels, last.Merge(asked.Labels, labels, desired.GetLabels(), ownsLabel), ownsLabel)
	for _, field := range contentOf(desired) {
		value := desired.Object[field]
		if !same(value, actual.Object[field]) && (last == nil || !last.Content.Has(textOf(value), field)) {
			patch.Add(jsonpatch.Pointer(field), value)
		}
	}
	merged := last.Merge(asked.Annotations, annotations, desired.GetAnnotations(), ownsAnnotation)
	if last == nil { // it gets a record with its next change
		delete(merged, asked.Annotation)
	}
	changes := jsonpatch.Strings("/metadata/annotations", annotations, merged, ownsAnnotation)
	if last == nil && len(patch)+len(changes) > 0 && record != "" {
		merged[asked.Annotation] = record
		changes = jsonpatch.Strings("/metadata/annotations", annotations, merged, ownsAnnotation)
	}
	return append(patch, changes...)
}

// setRecord records in desired, once it is complete, what is asked for with it.
func setRecord(desired *unstructured.Unstructured) {
	annotations := desired.GetAnnotations()
	delete(annotations, asked.Annotation) // that of a consumer
	record := asked.Record{Metadata: asked.MetadataValues(desired.GetLabels(), annotations), Content: asked.Values{}}
	for _, field := range contentOf(desired) {
		record.Content.Set(textOf(desired.Object[field]), field)
	}
	if text := record.Text(); text != "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[asked.Annotation] = text
	}
	desired.SetAnnotations(annotations)
}

// contentOf lists the fields of an EndpointSlice that are not its metadata, sorted.
func contentOf(slice *unstructured.Unstructured) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(slice.Object)), func(field string) bool {
		return field == "apiVersion" || field == "kind" || field == "metadata"
	})
}

// textOf returns the value of a field as JSON with sorted fields.
func textOf(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%#v", value)
	}
	return string(text)
}

// same treats null, an absent field and an empty list alike.
func same(a, b any) bool {
	if isNothing(a) && isNothing(b) {
		return true
	}
	return equality.Semantic.DeepEqual(a, b)
}

func isNothing(v any) bool {
	list, ok := v.([]any)
	return v == nil || ok && len(list) == 0
}
