// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/test/support/testenv"
)

// TestRewind checks that after a rewind, new objects are gone, changed objects are as before, and deleted objects exist
// again, even if the snapshot is restored a second time.
func TestRewind(t *testing.T) {
	c := testenv.ForTest(t, testenv.Options{NoScheduler: true})[0]
	configMaps := clientset(t, c.Config()).CoreV1().ConfigMaps("default")
	named := func(name, color string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"color": color}}
	}
	for _, name := range []string{"changed", "deleted"} {
		_, err := configMaps.Create(t.Context(), named(name, "red"), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	before, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	for range 2 {
		_, err := configMaps.Create(t.Context(), named("new", "blue"), metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = configMaps.Update(t.Context(), named("changed", "blue"), metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, configMaps.Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
		require.NoError(t, c.Rewind(t.Context(), before))
		for _, name := range []string{"changed", "deleted"} {
			stored, err := configMaps.Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, "red", stored.Data["color"], name)
		}
		_, err = configMaps.Get(t.Context(), "new", metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), "%v", err)
	}
}
