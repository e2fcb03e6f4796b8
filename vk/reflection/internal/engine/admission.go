// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

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
	"github.com/refract-project/refract/internal/serverversion"
	"github.com/refract-project/refract/vk/reflection/internal/admitted"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// FieldsDroppedReason is the reason of the Event about fields of a copy that the provider has not stored.
const FieldsDroppedReason = "FieldsDropped"

// sameAdmitted implements same for a copy with a record of the provider's admission.
func (x *Desired) sameAdmitted(w *Worker, remote *unstructured.Unstructured, record *admitted.Record) bool {
	if _, trimmed := digestOf(remote); trimmed {
		return false // the copy is read once per process
	}
	x.admitted = record
	object := x.Build(w, remote).DeepCopy() // Build shares with the cache
	record.Apply(object.Object, remote.Object)
	return x.r.isStored(object, remote)
}

// recordOf returns the record of a copy. It returns nil if the copy has no record.
func (r *reflector) recordOf(remote *unstructured.Unstructured) *admitted.Record {
	if r.kind.Copy.Mode == Replace {
		return admitted.ReadWhole(raw.Annotations(remote.Object))
	}
	return admitted.Read(raw.Annotations(remote.Object))
}

// WithAdmitted returns the desired copy with the decisions of the provider's admission that still hold for the present
// copy, or nil if the copy has no record. If the present copy is cached without all of its content, only the decisions
// about the cached part are applied.
func (x *Desired) WithAdmitted(w *Worker, remote *unstructured.Unstructured) *unstructured.Unstructured {
	record := x.r.recordOf(remote)
	if record == nil {
		return nil
	}
	object := x.Build(w, remote).DeepCopy() // Build shares with the cache
	record.Apply(object.Object, remote.Object)
	return object
}

// isStored reports whether the provider has stored everything that is sent, and nothing else if the copy is wholly
// ours.
func (r *reflector) isStored(sent, remote *unstructured.Unstructured) bool {
	if r.kind.Copy.Mode == Replace {
		return r.stored(sent) == r.stored(remote)
	}
	return document.Of(sent.Object).CoveredBy(document.Of(remote.Object))
}

// withAdmitted returns the object to send: the desired copy with the decisions of the provider's admission that still
// hold. covered reports that the provider has already stored it.
func (r *reflector) withAdmitted(ctx context.Context, w *Worker, x *Desired, remote, object *unstructured.Unstructured) (sent *unstructured.Unstructured, covered bool, err error) {
	record, unchanged := r.recordOf(remote), r.kind.Copy.Mode == Apply && raw.Annotations(remote.Object)[AppliedHashAnnotation] == x.hashText(w)
	if record == nil && !unchanged {
		return object, false, nil
	}
	whole, err := r.wholeCopy(ctx, x.scope, remote)
	if err != nil {
		return nil, false, err
	}
	if record == nil {
		record, covered, err = r.findAdmitted(ctx, x, object, whole)
		if err != nil || record.IsEmpty() {
			return object, covered, err
		}
	}
	object = object.DeepCopy() // the object shares with the cache
	x.admitted, x.stored = record.Apply(object.Object, whole.Object), whole
	object.Object["metadata"] = x.withRecord(object)
	if covered = r.isStored(object, whole); covered || !unchanged {
		return object, covered, nil
	}
	_, covered, err = r.findAdmitted(ctx, x, object, whole) // others may have added items to lists
	return object, covered, err
}

// findAdmitted returns the decisions of admission about a copy that lacks a record, because an earlier version wrote it
// or the response was lost. The present state must have been applied to the copy. covered reports that the state is
// stored and nothing needs to be recorded.
func (r *reflector) findAdmitted(ctx context.Context, x *Desired, object, whole *unstructured.Unstructured) (record *admitted.Record, covered bool, err error) {
	fields := admitted.Differences(object.Object, whole.Object)
	if r.kind.Copy.FixedSpec { // the hash in the annotation covers only the applied metadata
		fields = admitted.OfMetadata(fields)
	}
	if len(fields) == 0 {
		return nil, false, nil
	}
	decided, open, resourceVersion, err := r.decidedFields(ctx, x, fields, object, whole)
	if err != nil {
		return nil, false, err
	}
	if resourceVersion != whole.GetResourceVersion() {
		return nil, false, &RetryAfter{Soon} // the watch is late
	}
	if record = record.With(decided, object.Object, whole.Object); !record.IsEmpty() || len(open) > 0 || r.kind.Copy.FixedSpec {
		return record, false, nil
	}
	rest := object.DeepCopy() // the object shares with the cache
	for _, field := range fields {
		removeField(rest.Object, field.Path)
	}
	return record, r.isStored(rest, whole), nil
}

// decidedFields returns the fields that the provider's admission has replaced, the fields that other clients may have
// changed, both according to the field managers of the copy, and the resourceVersion of the copy.
func (r *reflector) decidedFields(ctx context.Context, x *Desired, fields []admitted.Field, sent, stored *unstructured.Unstructured) (decided, open []admitted.Field, resourceVersion string, err error) {
	// Only a response of the API server has managedFields: caches drop them.
	if entries := stored.GetManagedFields(); len(entries) > 0 {
		decided, open = admitted.Decided(fields, sent.Object, stored.Object, entries, wire.ReflectionFieldManager)
		return decided, open, stored.GetResourceVersion(), nil
	}
	var found *metav1.PartialObjectMetadata
	err = r.m.callRemote(ctx, func(ctx context.Context) (err error) {
		found, err = r.m.there.Metadata.Resource(r.kind.target()).Namespace(x.Namespace).Get(ctx, x.Name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, nil, "", fmt.Errorf("reading the field managers of %s %s/%s, %w", r.kind.targetKind(), x.Namespace, x.Name, err)
	}
	decided, open = admitted.Decided(fields, sent.Object, stored.Object, found.ManagedFields, wire.ReflectionFieldManager)
	return decided, open, found.ResourceVersion, nil
}

// recordAdmitted compares the stored object with the sent one, and warns about dropped fields. Decisions of admission
// are recorded in the copy by a second write, so that later writes keep them.
func (r *reflector) recordAdmitted(ctx context.Context, w *Worker, x *Desired, sent, stored *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	fields := admitted.Differences(sent.Object, stored.Object)
	r.warnDropped(ctx, w, x, fields)
	if r.kind.Copy.Mode == Replace {
		return r.recordWhole(ctx, w, x, sent, stored)
	}
	if admitted.AreSimilar(fields) {
		return stored, nil
	}
	// Items of lists may belong to other clients. A field that is missing in the schema of a custom resource was never
	// stored, and is sent again until the schema has it.
	decided, _, _, err := r.decidedFields(ctx, x, fields, sent, stored)
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
	recorded, err := r.send(ctx, x, object)
	switch {
	case denied(err):
		return stored, nil // further updates will be denied, too
	case err != nil:
		return nil, fmt.Errorf("recording in %s %s/%s which fields the provider has replaced, %w", r.kind.targetKind(), x.Namespace, x.Name, err)
	}
	r.counted("patch", "remote")
	return recorded, nil
}

// recordWhole implements recordAdmitted for a copy that is wholly ours: every difference is a decision.
func (r *reflector) recordWhole(ctx context.Context, w *Worker, x *Desired, sent, stored *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	fields := admitted.DifferencesOfWhole(r.compared(sent).Object, r.compared(stored).Object, admitted.Content{Path: r.kind.Copy.Into, InPart: r.kind.Copy.Changeable != nil})
	if admitted.AreSimilar(fields) {
		return stored, nil
	}
	x.admitted = x.admitted.With(fields, x.Build(w, stored).Object, stored.Object)
	for range recordTries {
		object := stored.DeepCopy() // the write is compared with stored
		informer.DropManagedFields(object)
		object.Object["metadata"] = x.withRecord(object)
		recorded, err := r.send(ctx, x, object)
		switch {
		case err == nil:
			r.counted("update", "remote")
			return recorded, nil
		case denied(err):
			return stored, nil // further updates will be denied, too
		case !apierrors.IsConflict(err):
			return nil, fmt.Errorf("recording in %s %s/%s which fields the provider has replaced, %w", r.kind.targetKind(), x.Namespace, x.Name, err)
		}
		found, err := r.read(ctx, x.scope, x.Name) // the provider's controllers have written their fields by now
		if err != nil {
			return nil, err
		}
		if found == nil || found.GetUID() != stored.GetUID() {
			return stored, nil // the watch will report it
		}
		stored = found
	}
	return nil, &RetryAfter{Soon}
}

// recordTries limits how often a record is written when others write to the copy at the same time.
const recordTries = 5

// compared returns a copy without the content about which no decisions are recorded. The result shares memory with
// object.
func (r *reflector) compared(object *unstructured.Unstructured) *unstructured.Unstructured {
	if r.kind.Copy.Changeable == nil {
		return object
	}
	less := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	delete(less.Object, r.kind.Copy.Into[0])
	set(less.Object, r.kind.Copy.Into, r.kind.Copy.Changeable(raw.Map(raw.Nested(object.Object, r.kind.Copy.Into...))))
	return less
}

// withRecord returns the metadata of an object with the record of the copy.
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

// warnDropped warns about fields that the provider has not stored: its API server does not know them, has the feature
// disabled, or its admission removes them.
func (r *reflector) warnDropped(ctx context.Context, w *Worker, x *Desired, fields []admitted.Field) {
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
	r.m.events.Warn(r.kind.Name, x.local, FieldsDroppedReason, fmt.Sprintf(
		"cluster %s (%s) stored %s %s/%s without %s: its API server does not know the field or has its feature disabled, or its admission removes the field. "+
			"Upgrade the provider, enable the feature, or remove the field",
		r.m.options.RemoteClusterID, r.m.describeRemoteVersion(ctx), r.kind.targetKind(), x.Namespace, x.Name, strings.Join(dropped, ", ")))
}

// describeRemoteVersion returns the version of the provider's API server, for a message.
func (m *Manager) describeRemoteVersion(ctx context.Context) string {
	version, err := m.remoteVersion(ctx)
	if err != nil {
		return "Kubernetes of unknown version"
	}
	return "Kubernetes " + version
}

// readRemoteVersion reads the version of the provider's API server.
func (m *Manager) readRemoteVersion(ctx context.Context) (version string, err error) {
	err = m.callRemote(ctx, func(ctx context.Context) (err error) {
		version, err = serverversion.Read(ctx, m.probe)
		return err
	})
	return version, err
}
