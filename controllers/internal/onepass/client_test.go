// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package onepass_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/controllers/internal/onepass"
)

func TestWhatIsCreatedIsReadBack(t *testing.T) {
	c, err := onepass.NewClient(cluster.Config(), client.Options{})
	require.NoError(t, err)
	slice := unstructuredSlice()
	slice.SetNamespace(cluster.Namespace(t))
	slice.SetName("new")
	slice.Object["addressType"] = "IPv4"
	shared, before := slice.Object, slice.DeepCopy().Object
	require.NoError(t, c.Create(t.Context(), slice, client.FieldOwner("somebody")))
	if managers := slice.GetManagedFields(); slice.GetUID() == "" || len(managers) != 1 || managers[0].Manager != "somebody" {
		t.Errorf("read back: %v", slice.Object)
	}
	if !reflect.DeepEqual(shared, before) {
		t.Errorf("what was given has changed: %v", shared)
	}
	slice = &unstructured.Unstructured{Object: shared}
	if err := c.Create(t.Context(), slice); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second time: %v", err)
	}
	typed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: slice.GetNamespace(), Name: "typed"}}
	if err := c.Create(t.Context(), typed); err != nil || typed.UID == "" {
		t.Errorf("a typed object: %v, error %v", typed, err)
	}
	if err := c.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Nothing"}}); err == nil {
		t.Error("a kind that does not exist could be created")
	}
}
