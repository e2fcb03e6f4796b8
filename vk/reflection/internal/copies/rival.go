// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// mayWrite returns a *oscillation.QuarantineError if another client reverts writes to the copy repeatedly. object is
// the next write.
func (c *Writer) mayWrite(ctx context.Context, x *Desired, hash uint64, object *unstructured.Unstructured) error {
	return x.scope.fights.Describe(x.Key, x.scope.fights.MayWrite(x.Key, x.scope.cause(x.local), hash), func() string { return c.describeRival(ctx, x, object) })
}

// describeRival describes the client that deletes or reverts the copy, and the fields that differ. It returns "" if
// the client is unknown.
func (c *Writer) describeRival(ctx context.Context, x *Desired, object *unstructured.Unstructured) string {
	found, err := c.read(ctx, x.scope, x.Name)
	if err != nil {
		return ""
	}
	if found == nil {
		return oscillation.DescribeDeleter(object.GetLabels(), object.GetAnnotations())
	}
	var entries []metav1.ManagedFieldsEntry
	err = c.clients.CallRemote(ctx, func(ctx context.Context) error {
		metadata, err := c.clients.There.Metadata.Resource(c.Resource).Namespace(x.Namespace).Get(ctx, x.Name, metav1.GetOptions{})
		if err == nil {
			entries = metadata.ManagedFields
		}
		return err
	})
	if err != nil {
		return ""
	}
	return oscillation.DescribeWriter(entries, "", oscillation.Differences(writtenFields(object), writtenFields(found), c.spec.Mode == Replace))
}

// writtenFields returns the labels, the annotations and the content of an object.
func writtenFields(object *unstructured.Unstructured) map[string]any {
	fields := maps.Clone(object.Object)
	maps.DeleteFunc(fields, func(key string, _ any) bool { return content.IsOwn(key) })
	fields["metadata"] = map[string]any{"labels": raw.Labels(object.Object), "annotations": raw.Annotations(object.Object)}
	return fields
}
