// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/admitted"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// FieldsDroppedReason is the reason of the Event about fields of a copy that the provider has not stored.
const FieldsDroppedReason = "FieldsDropped"

// sameAdmitted does the same as the method same, for a copy that has a record of the provider's admission.
func (x *Desired) sameAdmitted(w *evaluation.Worker, remote *unstructured.Unstructured, record *admitted.Record) bool {
	if _, trimmed := content.DigestOf(remote); trimmed {
		return false // the content of the copy is not known, so the copy is read once in each process
	}
	x.admitted = record
	object := x.Build(w, remote).DeepCopy() // a deep copy, because the result of Build shares memory with the cache
	record.Apply(object.Object, remote.Object)
	return x.c.isStored(object, remote)
}

// recordOf returns the record of a copy, or nil if it has none.
func (c *Writer) recordOf(remote *unstructured.Unstructured) *admitted.Record {
	if c.spec.Mode == Replace {
		return admitted.ReadWhole(raw.Annotations(remote.Object))
	}
	return admitted.Read(raw.Annotations(remote.Object))
}

// WithAdmitted returns the desired copy with those decisions of the provider's admission that are still valid for the
// existing copy. It returns nil if the existing copy has no record. If the cache contains only a part of the copy's
// content, only the decisions about this part are applied.
func (x *Desired) WithAdmitted(w *evaluation.Worker, remote *unstructured.Unstructured) *unstructured.Unstructured {
	record := x.c.recordOf(remote)
	if record == nil {
		return nil
	}
	object := x.Build(w, remote).DeepCopy() // a deep copy, because the result of Build shares memory with the cache
	record.Apply(object.Object, remote.Object)
	return object
}

// isStored reports whether the provider has stored everything that was sent. In the mode Replace, only the virtual
// kubelet writes the copy, so the provider must not have stored anything else.
func (c *Writer) isStored(sent, remote *unstructured.Unstructured) bool {
	if c.spec.Mode == Replace {
		return c.stored(sent) == c.stored(remote)
	}
	return document.Of(sent.Object).CoveredBy(document.Of(remote.Object))
}

// withAdmitted returns the object to send, which is the desired copy with those decisions of the provider's admission
// that are still valid. covered reports whether the provider has already stored this object.
func (c *Writer) withAdmitted(ctx context.Context, w *evaluation.Worker, x *Desired, remote, object *unstructured.Unstructured) (sent *unstructured.Unstructured, covered bool, err error) {
	record, unchanged := c.recordOf(remote), c.spec.Mode == Apply && raw.Annotations(remote.Object)[AppliedHashAnnotation] == x.hashText(w)
	if record == nil && !unchanged {
		return object, false, nil
	}
	whole, err := c.WholeCopy(ctx, x.scope, remote)
	if err != nil {
		return nil, false, err
	}
	if record == nil {
		record, covered, err = c.findAdmitted(ctx, x, object, whole)
		if err != nil || record.IsEmpty() {
			return object, covered, err
		}
	}
	object = object.DeepCopy() // a deep copy, because object shares memory with the cache
	x.admitted, x.stored = record.Apply(object.Object, whole.Object), whole
	object.Object["metadata"] = x.withRecord(object)
	if covered = c.isStored(object, whole); covered || !unchanged {
		return object, covered, nil
	}
	// The copy may be covered even if it differs, because other clients may have added items to lists.
	_, covered, err = c.findAdmitted(ctx, x, object, whole)
	return object, covered, err
}

// findAdmitted returns the decisions of admission about a copy without a record. The record is missing if an earlier
// version has written the copy, or if the response to the write was lost. The current state must have been applied to
// the copy before. covered reports whether this state is stored and no decision needs to be recorded.
func (c *Writer) findAdmitted(ctx context.Context, x *Desired, object, whole *unstructured.Unstructured) (record *admitted.Record, covered bool, err error) {
	fields := admitted.Differences(object.Object, whole.Object)
	if c.spec.FixedSpec { // In this case, the hash in the annotation covers only the applied metadata.
		fields = admitted.OfMetadata(fields)
	}
	if len(fields) == 0 {
		return nil, false, nil
	}
	decided, open, resourceVersion, err := c.decidedFields(ctx, x, fields, object, whole)
	if err != nil {
		return nil, false, err
	}
	if resourceVersion != whole.GetResourceVersion() {
		// The cached copy is outdated, because the watch has not delivered the latest version yet.
		return nil, false, &failure.RetryAfter{After: Soon}
	}
	if record = record.With(decided, object.Object, whole.Object); !record.IsEmpty() || len(open) > 0 || c.spec.FixedSpec {
		return record, false, nil
	}
	rest := object.DeepCopy() // a deep copy, because object shares memory with the cache
	for _, field := range fields {
		content.RemoveField(rest.Object, field.Path)
	}
	return record, c.isStored(rest, whole), nil
}

// decidedFields returns the fields that the provider's admission has replaced, and the fields that other clients may
// have changed, as determined by the field managers of the copy. It also returns the resourceVersion of the copy.
func (c *Writer) decidedFields(ctx context.Context, x *Desired, fields []admitted.Field, sent, stored *unstructured.Unstructured) (decided, open []admitted.Field, resourceVersion string, err error) {
	// stored has managedFields only if it is a response from the API server, because caches drop them.
	if entries := stored.GetManagedFields(); len(entries) > 0 {
		decided, open = admitted.Decided(fields, sent.Object, stored.Object, entries, wire.ReflectionFieldManager)
		return decided, open, stored.GetResourceVersion(), nil
	}
	var found *metav1.PartialObjectMetadata
	err = c.clients.CallRemote(ctx, func(ctx context.Context) (err error) {
		found, err = c.clients.There.Metadata.Resource(c.Resource).Namespace(x.Namespace).Get(ctx, x.Name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, nil, "", fmt.Errorf("reading the field managers of %s %s/%s, %w", c.copyKind, x.Namespace, x.Name, err)
	}
	decided, open = admitted.Decided(fields, sent.Object, stored.Object, found.ManagedFields, wire.ReflectionFieldManager)
	return decided, open, found.ResourceVersion, nil
}

// recordAdmitted compares the stored object with the object that was sent, and warns about dropped fields. A second
// write records the decisions of admission in the copy, so that later writes keep them.
func (c *Writer) recordAdmitted(ctx context.Context, w *evaluation.Worker, x *Desired, sent, stored *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	fields := admitted.Differences(sent.Object, stored.Object)
	c.warnDropped(ctx, w, x, fields)
	if c.spec.Mode == Replace {
		return c.recordWhole(ctx, w, x, sent, stored)
	}
	if admitted.AreSimilar(fields) {
		return stored, nil
	}
	// A difference is a decision only if the field managers show this, because list items may belong to other clients.
	// A field that is missing in the schema of a custom resource was never stored, and is no decision: later writes
	// send it again, because the schema may be extended.
	decided, _, _, err := c.decidedFields(ctx, x, fields, sent, stored)
	if err != nil {
		return nil, err
	}
	requested := x.Build(w, stored)
	next := x.admitted.With(decided, requested.Object, stored.Object)
	if next.Equal(x.admitted) {
		return stored, nil
	}
	object := sent.DeepCopy()
	x.admitted = next.Apply(object.Object, stored.Object)
	object.Object["metadata"] = x.withRecord(object)
	object.SetUID(stored.GetUID())
	object.SetResourceVersion("")
	recorded, err := c.send(ctx, x, object)
	switch {
	case denied(err):
		return stored, nil // no record is written, because further updates will be denied, too
	case err != nil:
		return nil, fmt.Errorf("recording in %s %s/%s which fields the provider has replaced, %w", c.copyKind, x.Namespace, x.Name, err)
	}
	c.writes.Count("patch", "remote")
	return recorded, nil
}

// recordWhole does the same as recordAdmitted for a copy that only the virtual kubelet writes. In such a copy, every
// difference is a decision of admission.
func (c *Writer) recordWhole(ctx context.Context, w *evaluation.Worker, x *Desired, sent, stored *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	fields := admitted.DifferencesOfWhole(c.compared(sent).Object, c.compared(stored).Object, admitted.Content{Path: c.spec.Into, InPart: c.spec.Changeable != nil})
	if admitted.AreSimilar(fields) {
		return stored, nil
	}
	x.admitted = x.admitted.With(fields, x.Build(w, stored).Object, stored.Object)
	for range recordTries {
		object := stored.DeepCopy() // a deep copy, because stored is compared with the result of the write
		informer.DropManagedFields(object)
		object.Object["metadata"] = x.withRecord(object)
		recorded, err := c.send(ctx, x, object)
		switch {
		case err == nil:
			c.writes.Count("update", "remote")
			return recorded, nil
		case denied(err):
			return stored, nil // no record is written, because further updates will be denied, too
		case !apierrors.IsConflict(err):
			return nil, fmt.Errorf("recording in %s %s/%s which fields the provider has replaced, %w", c.copyKind, x.Namespace, x.Name, err)
		}
		// The copy is read again, because the provider's controllers may have written their fields in the meantime.
		found, err := c.read(ctx, x.scope, x.Name)
		if err != nil {
			return nil, err
		}
		if found == nil || found.GetUID() != stored.GetUID() {
			return stored, nil // the watch will report the change
		}
		stored = found
	}
	return nil, &failure.RetryAfter{After: Soon}
}

// recordTries is the maximum number of attempts to write a record while other clients write the copy.
const recordTries = 5

// compared returns a copy without the content for which no decisions are recorded. The result shares memory with
// object.
func (c *Writer) compared(object *unstructured.Unstructured) *unstructured.Unstructured {
	if c.spec.Changeable == nil {
		return object
	}
	less := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	delete(less.Object, c.spec.Into[0])
	content.Set(less.Object, c.spec.Into, c.spec.Changeable(raw.Map(raw.Nested(object.Object, c.spec.Into...))))
	return less
}

// withRecord returns the metadata of an object, with the record as an annotation.
func (x *Desired) withRecord(object *unstructured.Unstructured) map[string]any {
	metadata := raw.Map(object.Object["metadata"])
	annotations := raw.Map(metadata["annotations"])
	delete(annotations, admitted.Annotation)
	if text := x.admitted.Text(); text != "" {
		if annotations == nil {
			annotations = map[string]any{}
			metadata["annotations"] = annotations
		}
		annotations[admitted.Annotation] = text
	}
	return metadata
}

// warnDropped warns about fields that the provider has not stored, because its API server does not know them or has
// the feature disabled, or because its admission removes them.
func (c *Writer) warnDropped(ctx context.Context, w *evaluation.Worker, x *Desired, fields []admitted.Field) {
	var dropped []string
	for _, field := range fields {
		if field.Dropped {
			dropped = append(dropped, field.String())
		}
	}
	if len(dropped) == 0 {
		return
	}
	w.Warned = true
	c.events.Warn(x.local, FieldsDroppedReason, fmt.Sprintf(
		"cluster %s (%s) stored %s %s/%s without %s: its API server does not know the field or has its feature disabled, or its admission removes the field. "+
			"Upgrade the provider, enable the feature, or remove the field",
		c.remoteClusterID, c.clients.DescribeRemoteVersion(ctx), c.copyKind, x.Namespace, x.Name, strings.Join(dropped, ", ")))
}
