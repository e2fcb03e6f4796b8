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

// errForeign is returned if an EndpointSlice with the desired name exists but has another owner.
var errForeign = report.Errorf(report.Foreign, "an EndpointSlice of this name exists that is not ours")

// serverChanges contains the differences between a slice as it was written and as the API server has stored it. The
// differences are not written again before the time in the field until.
type serverChanges struct {
	slice types.UID
	patch string
	until time.Time
}

// applySlice makes the EndpointSlice equal to desired with at most one write. If it is already equal, nothing is
// written.
func (c *Controller) applySlice(ctx context.Context, shadow, desired *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(shadow)
	actual := newSlice()
	err := c.client.Get(ctx, key, actual)
	switch {
	case apierrors.IsNotFound(err):
		return c.createSlice(ctx, shadow, desired)
	case err != nil:
		return fmt.Errorf("getting EndpointSlice %s, %w", key, err)
	}
	if actual, err = shadows.Whole(ctx, c.uncached, actual, contentFields...); err != nil || actual == nil {
		// The deletion of the EndpointSlice triggers the next reconciliation.
		return err
	}
	return c.updateSlice(ctx, shadow, desired, actual)
}

func (c *Controller) createSlice(ctx context.Context, shadow, desired *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(shadow)
	if err := c.brake.MayCreate(ctx, shadow, createAction); err != nil {
		return err
	}
	// A copy is sent, because the client stores the response of the server in the object.
	created := &unstructured.Unstructured{Object: maps.Clone(desired.Object)}
	err := c.client.Create(ctx, created, client.FieldOwner(wire.ShadowEndpointSliceFieldManager))
	switch {
	case err == nil:
		c.brake.Created(shadow)
		c.recordServerChanges(shadow, desired, created)
		return nil
	case apierrors.IsAlreadyExists(err):
		return c.updateUncached(ctx, shadow, desired)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	}
	c.report.Warn(shadow, failedCreateReason, createAction, "creating the EndpointSlice: "+err.Error())
	err = fmt.Errorf("creating EndpointSlice %s, %w", key, err)
	// This error may also come from an admission policy of this cluster.
	if apierrors.IsInvalid(err) {
		return report.Later(err, c.invalid.Next(key, textOf(desired.Object)))
	}
	return err
}

// updateUncached handles an EndpointSlice that exists but is not in the cache. The cache only contains slices with
// the label of this controller.
func (c *Controller) updateUncached(ctx context.Context, shadow, desired *unstructured.Unstructured) error {
	actual := newSlice()
	if err := c.uncached.Get(ctx, client.ObjectKeyFromObject(shadow), actual); err != nil {
		return fmt.Errorf("getting EndpointSlice %s, which exists already, %w", client.ObjectKeyFromObject(shadow), err)
	}
	actual, err := shadows.Whole(ctx, c.uncached, actual, contentFields...)
	if err != nil || actual == nil {
		return err
	}
	return c.updateSlice(ctx, shadow, desired, actual)
}

func (c *Controller) updateSlice(ctx context.Context, shadow, desired, actual *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(shadow)
	switch {
	case !metav1.IsControlledBy(actual, shadow) && kind.OwnerOf(actual) != nil:
		if err := c.deletePredecessor(ctx, actual); err != nil {
			return err
		}
		return fmt.Errorf("waiting for the deletion of EndpointSlice %s, which was made of an earlier ShadowEndpointSlice of this name", key)
	case !metav1.IsControlledBy(actual, shadow):
		c.report.Warn(shadow, failedCreateReason, createAction, fmt.Sprintf(
			"an EndpointSlice %s exists that does not belong to this ShadowEndpointSlice; it was left unchanged: delete or rename it", key))
		return fmt.Errorf("creating EndpointSlice %s, %w", key, errForeign)
	case actual.GetDeletionTimestamp() != nil:
		// The deletion of the EndpointSlice triggers the next reconciliation.
		return nil
	}
	changes := changesOf(desired, actual)
	if len(changes) == 0 {
		c.clearRefusals(key)
		return nil
	}
	if last, ok := c.refused.Get(key); ok && last.slice == actual.GetUID() && last.patch == changes.String() && time.Now().Before(last.until) {
		return nil
	}
	return c.patchSlice(ctx, shadow, desired, actual, changes)
}

func (c *Controller) patchSlice(ctx context.Context, shadow, desired, actual *unstructured.Unstructured, changes jsonpatch.Patch) error {
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
		c.recordServerChanges(shadow, desired, written)
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

// recordServerChanges records the fields that the server has changed in a written slice.
func (c *Controller) recordServerChanges(shadow, desired, written *unstructured.Unstructured) {
	key := client.ObjectKeyFromObject(shadow)
	rest := changesOf(desired, written)
	if len(rest) == 0 {
		c.clearRefusals(key)
		return
	}
	c.refuseUntil(key, written, rest)
	c.report.Warn(shadow, failedUpdateReason, updateAction,
		"writing the EndpointSlice: the API server or a webhook of this cluster modified the EndpointSlice on write; differing: "+rest.String())
}

// refuseUntil records that changes to a slice were refused, and returns the delay until the next attempt.
func (c *Controller) refuseUntil(key types.NamespacedName, slice *unstructured.Unstructured, changes jsonpatch.Patch) time.Duration {
	wait := c.invalid.Next(key, string(slice.GetUID())+changes.String())
	c.refused.Set(key, serverChanges{slice.GetUID(), changes.String(), time.Now().Add(wait)})
	return wait
}

// clearRefusals clears the recorded refusals of a slice.
func (c *Controller) clearRefusals(key types.NamespacedName) {
	c.refused.Drop(key)
	c.invalid.Drop(key)
}

// changesOf returns the changes that make actual equal to desired. If the desired value of a field has not changed, the
// field keeps the value that another client has set (see package asked). In a slice without a record, all fields are
// compared, because outdated endpoints must not remain.
func changesOf(desired, actual *unstructured.Unstructured) jsonpatch.Patch {
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
		if !isSameValue(value, actual.Object[field]) && (last == nil || !last.Content.Has(textOf(value), field)) {
			patch.Add(jsonpatch.Pointer(field), value)
		}
	}
	merged := last.Merge(asked.Annotations, annotations, desired.GetAnnotations(), ownsAnnotation)
	// The record alone is no reason to write.
	if last == nil {
		delete(merged, asked.Annotation)
	}
	changes := jsonpatch.Strings("/metadata/annotations", annotations, merged, ownsAnnotation)
	if last == nil && len(patch)+len(changes) > 0 && record != "" {
		merged[asked.Annotation] = record
		changes = jsonpatch.Strings("/metadata/annotations", annotations, merged, ownsAnnotation)
	}
	return append(patch, changes...)
}

// setRecord records the complete content of desired in its annotations.
func setRecord(desired *unstructured.Unstructured) {
	annotations := desired.GetAnnotations()
	// The consumer may have set this annotation.
	delete(annotations, asked.Annotation)
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

// contentOf returns the sorted names of an EndpointSlice's fields, without its metadata.
func contentOf(slice *unstructured.Unstructured) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(slice.Object)), func(field string) bool {
		return field == "apiVersion" || field == "kind" || field == "metadata"
	})
}

// textOf returns a value as JSON with sorted fields.
func textOf(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%#v", value)
	}
	return string(text)
}

// isSameValue compares two values. null, an absent field and an empty list count as equal.
func isSameValue(a, b any) bool {
	if isNothing(a) && isNothing(b) {
		return true
	}
	return equality.Semantic.DeepEqual(a, b)
}

func isNothing(v any) bool {
	list, ok := v.([]any)
	return v == nil || ok && len(list) == 0
}
