// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/release"
)

const (
	fieldOwner     = client.FieldOwner(negotiation.Creator)
	managedByLabel = release.ManagedByLabel
	managedBy      = release.ManagedBy
)

// meta returns the ObjectMeta of an object that this program creates.
func meta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	all := map[string]string{managedByLabel: managedBy}
	maps.Copy(all, labels)
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: all}
}

// IsOurs reports whether this program created the object, and may therefore change and delete it.
func IsOurs(object client.Object) bool { return object.GetLabels()[managedByLabel] == managedBy }

// find returns the metadata and the kind of an object in the cluster. The metadata is nil if the object does not
// exist.
func (c *Cluster) find(ctx context.Context, object client.Object) (*metav1.PartialObjectMetadata, schema.GroupVersionKind, error) {
	kind, err := apiutil.GVKForObject(object, c.Client.Scheme())
	if err != nil {
		return nil, kind, err
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(kind)
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(object), found)
	if apierrors.IsNotFound(err) {
		return nil, kind, nil
	}
	if err != nil {
		return nil, kind, fmt.Errorf("cluster %s: getting %s %s, %w", c.Name, kind.Kind, client.ObjectKeyFromObject(object), err)
	}
	// The response need not contain the kind.
	found.SetGroupVersionKind(kind)
	return found, kind, nil
}

// neverStored is a resourceVersion that no object has. An apply with it fails with a conflict if an object with that
// name exists by then. When the command runs twice at the same time, only one run creates the object, and removes it
// again if that run fails.
const neverStored = "9223372036854775807"

// apply creates an object, or updates it if it is ours. Objects of other owners, such as the chart, are left unchanged.
func (c *Cluster) apply(ctx context.Context, object client.Object) error {
	found, kind, err := c.find(ctx, object)
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
	err = c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), fieldOwner, client.ForceOwnership)
	if found == nil && apierrors.IsConflict(err) {
		if found, _, err = c.find(ctx, object); err != nil || found != nil && !IsOurs(found) {
			return err
		}
		desired.SetResourceVersion("")
		err = c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), fieldOwner, client.ForceOwnership)
	}
	if err != nil {
		return fmt.Errorf("cluster %s: applying %s %s, %w", c.Name, kind.Kind, key, err)
	}
	if found == nil && isOursAlone(desired) {
		c.noteCreated(desired)
	}
	return nil
}

// annotate sets an annotation of an object, or removes it if value is nil.
func (c *Cluster) annotate(ctx context.Context, object client.Object, key string, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		return fmt.Errorf("encoding annotation %s, %w", key, err)
	}
	if err := c.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		return fmt.Errorf("cluster %s: annotating %s, %w", c.Name, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// remove deletes an object if it is ours and is there.
func (c *Cluster) remove(ctx context.Context, object client.Object) error {
	found, kind, err := c.find(ctx, object)
	if err != nil || found == nil {
		return err
	}
	if !IsOurs(found) {
		c.noteLeft(kind, found.Namespace, found.Name)
		return nil
	}
	return c.discard(ctx, found)
}

// removeAll deletes the objects that this program created, in reverse order.
func (c *Cluster) removeAll(ctx context.Context, objects []client.Object) error {
	for _, object := range slices.Backward(objects) {
		if err := c.remove(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// isOursAlone reports whether no other client has written to an applied object, such as one that created it concurrently.
func isOursAlone(applied client.Object) bool {
	return !slices.ContainsFunc(applied.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager != string(fieldOwner) })
}
