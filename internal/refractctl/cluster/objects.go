// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/refractctl/release"
)

const (
	// FieldOwner is the field manager of refractctl.
	FieldOwner = client.FieldOwner(negotiation.Creator)
	// ManagedByLabel is a label with the value ManagedBy on objects that refractctl has created.
	ManagedByLabel = release.ManagedByLabel
	ManagedBy      = release.ManagedBy
)

// Meta returns the ObjectMeta of an object that refractctl creates.
func Meta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	all := map[string]string{ManagedByLabel: ManagedBy}
	maps.Copy(all, labels)
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: all}
}

// IsOurs reports whether refractctl has created the object, so that it may change and delete it.
func IsOurs(object client.Object) bool { return object.GetLabels()[ManagedByLabel] == ManagedBy }

// Describe returns the kind, the namespace and the name of an object, for messages.
func Describe(object *metav1.PartialObjectMetadata) string {
	return object.Kind + " " + strings.TrimPrefix(client.ObjectKeyFromObject(object).String(), "/")
}

// Find returns the metadata and the kind of an object in the cluster. If the object does not exist, the metadata is
// nil.
func (c *Cluster) Find(ctx context.Context, object client.Object) (*metav1.PartialObjectMetadata, schema.GroupVersionKind, error) {
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
	// The response may not contain the kind.
	found.SetGroupVersionKind(kind)
	return found, kind, nil
}

// Annotate sets an annotation of an object, or removes it if value is nil.
func (c *Cluster) Annotate(ctx context.Context, object client.Object, key string, value any) error {
	return c.AnnotateAll(ctx, object, map[string]any{key: value})
}

// AnnotateAll sets annotations of an object. An annotation whose value is nil is removed.
func (c *Cluster) AnnotateAll(ctx context.Context, object client.Object, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encoding annotations of %s, %w", client.ObjectKeyFromObject(object), err)
	}
	if err := c.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), FieldOwner); err != nil {
		kind, _ := apiutil.GVKForObject(object, c.Client.Scheme())
		return fmt.Errorf("cluster %s: annotating %s %s, %w", c.Name, kind.Kind, strings.TrimPrefix(client.ObjectKeyFromObject(object).String(), "/"), err)
	}
	return nil
}

// DescribeRemaining describes what is left in a namespace that refractctl has created and deleted. It returns "" if the
// namespace is gone, or if it belongs to someone else and was therefore not deleted.
func (c *Cluster) DescribeRemaining(ctx context.Context, name string) (remaining string, err error) {
	namespace := &corev1.Namespace{}
	err = c.Client.Get(ctx, client.ObjectKey{Name: name}, namespace)
	switch {
	case apierrors.IsNotFound(err) || err == nil && !IsOurs(namespace):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("cluster %s: getting namespace %s, %w", c.Name, name, err)
	}
	for _, condition := range namespace.Status.Conditions {
		if condition.Type == corev1.NamespaceContentRemaining && condition.Status == corev1.ConditionTrue {
			return condition.Message, nil
		}
	}
	return "it is being deleted", nil
}
