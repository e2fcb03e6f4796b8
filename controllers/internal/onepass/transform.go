// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package onepass

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// DropManagedFields is a cache transform like cache.TransformStripManagedFields. The latter decodes the managedFields
// of an unstructured object to check whether there are any, which takes a tenth of the controllers' CPU time while
// offloaded pods are deleted.
func DropManagedFields(object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
		return u, nil
	}
	return dropTyped(object)
}

var dropTyped = cache.TransformStripManagedFields()
