// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/internal/progress"
)

// Writer creates and updates objects in a cluster during one run. It records which objects it has created, so that they
// can be removed if the run fails. It is not safe for concurrent use.
type Writer struct {
	*Side
	// created lists the objects that this run has created, in the order of their creation.
	created []*metav1.PartialObjectMetadata
}

// NewWriter returns a Writer without records.
func NewWriter(side *Side) *Writer { return &Writer{Side: side} }

// neverStored is a resourceVersion that no object has. An apply with it either creates the object, or fails with a
// conflict if the object exists. Therefore, if a command runs twice at the same time, only one run creates the object,
// and only this run removes it after a failure.
const neverStored = "9223372036854775807"

// Apply creates the objects, in order. Existing objects are updated only if refractctl created them. Objects of others,
// such as the chart, are not changed.
func (w *Writer) Apply(ctx context.Context, objects ...client.Object) error {
	for _, object := range objects {
		if err := w.applyOne(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) applyOne(ctx context.Context, object client.Object) error {
	found, kind, err := w.Find(ctx, object)
	if err != nil || found != nil && !IsOurs(found) {
		return err
	}
	key := client.ObjectKeyFromObject(object)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("encoding %s %s, %w", kind.Kind, key, err)
	}
	desired := &unstructured.Unstructured{Object: fields}
	desired.SetGroupVersionKind(kind)
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(fields, "status")
	if found == nil {
		desired.SetResourceVersion(neverStored)
	}
	err = w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), FieldOwner, client.ForceOwnership)
	if found == nil && apierrors.IsConflict(err) {
		if found, _, err = w.Find(ctx, object); err != nil || found != nil && !IsOurs(found) {
			return err
		}
		desired.SetResourceVersion("")
		err = w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), FieldOwner, client.ForceOwnership)
	}
	if err != nil {
		return fmt.Errorf("cluster %s: applying %s %s, %w", w.Name, kind.Kind, key, err)
	}
	if found == nil && isOursAlone(desired) {
		w.recordCreated(desired)
	}
	return nil
}

// isOursAlone reports whether no other client has written the applied object. Another client may have created it at the
// same time.
func isOursAlone(applied client.Object) bool {
	return !slices.ContainsFunc(applied.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager != string(FieldOwner) })
}

func (w *Writer) recordCreated(object client.Object) {
	created := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), CreationTimestamp: object.GetCreationTimestamp()}}
	created.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	w.created = append(w.created, created)
}

// Remove deletes the objects in reverse order. Objects that do not exist or that refractctl has not created are
// skipped.
func (w *Writer) Remove(ctx context.Context, objects ...client.Object) error {
	return NewRemover(w.Side, false).Remove(ctx, objects...)
}

// HasCreated reports whether this run has created objects that have not been removed.
func (w *Writer) HasCreated() bool { return len(w.created) > 0 }

// DescribeCreated describes the created objects for the user: the first one, and the number of the others.
func (w *Writer) DescribeCreated() string {
	first := Describe(w.created[0])
	if more := len(w.created) - 1; more > 0 {
		return fmt.Sprintf("%s, with %d more objects,", first, more)
	}
	return first
}

// RemoveCreated deletes the objects that this run has created, in reverse order, and waits until deleted namespaces are
// gone. If it deletes the peer's tenant namespace, it also deletes the peer's ForeignCluster. After an error,
// HasCreated and DescribeCreated describe the remaining objects.
func (w *Writer) RemoveCreated(ctx context.Context, peer string, report progress.Reporter) error {
	for _, object := range slices.Backward(slices.Clone(w.created)) {
		if err := w.deleteExactly(ctx, object); err != nil {
			return err
		}
		if object.Kind == "Namespace" {
			if err := report.Await(ctx, "namespace "+object.Name+" of "+w.ID(), func(ctx context.Context) (string, error) { return w.DescribeRemaining(ctx, object.Name) }); err != nil {
				return err
			}
			if err := w.deleteForeignCluster(ctx, peer, object.CreationTimestamp); err != nil {
				return err
			}
		}
		w.created = w.created[:len(w.created)-1]
	}
	return nil
}

// deleteExactly deletes an object by its UID. If the object has been replaced by another one with the same name, the new one is kept.
func (c *Cluster) deleteExactly(ctx context.Context, object client.Object) error {
	uid := object.GetUID()
	err := c.Client.Delete(ctx, object, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		kind := object.GetObjectKind().GroupVersionKind().Kind
		return fmt.Errorf("cluster %s: deleting %s %s, %w", c.Name, kind, strings.TrimPrefix(client.ObjectKeyFromObject(object).String(), "/"), err)
	}
	return nil
}

// deleteForeignCluster deletes the ForeignCluster of a peer if it was created after the tenant namespace, which means
// that the controllers created it.
func (c *Cluster) deleteForeignCluster(ctx context.Context, peer string, since metav1.Time) error {
	cluster := &core.ForeignCluster{}
	err := c.Client.Get(ctx, types.NamespacedName{Name: peer}, cluster)
	if apierrors.IsNotFound(err) || err == nil && cluster.CreationTimestamp.Before(&since) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cluster %s: getting ForeignCluster %s, %w", c.Name, peer, err)
	}
	return c.deleteExactly(ctx, cluster)
}
