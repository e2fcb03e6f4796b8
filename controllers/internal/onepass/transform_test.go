// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package onepass_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/controllers/internal/onepass"
)

func TestManagedFieldsAreDropped(t *testing.T) {
	managed := []metav1.ManagedFieldsEntry{{Manager: "somebody"}}
	object := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"key": "value"}}}
	object.SetName("web")
	object.SetManagedFields(managed)
	typed := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", ManagedFields: managed}}
	for given, want := range map[any]any{
		object: &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "web"}, "data": map[string]any{"key": "value"}}},
		typed:  &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
		// A tombstone stands for an object whose deletion was missed by the watch.
		toolscache.DeletedFinalStateUnknown{Key: "web"}: toolscache.DeletedFinalStateUnknown{Key: "web"},
		&unstructured.Unstructured{}:                    &unstructured.Unstructured{},
	} {
		got, err := onepass.DropManagedFields(given)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}
