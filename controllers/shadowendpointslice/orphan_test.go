// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowendpointslice_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/controllers/internal/controllertest"
)

func exists(*discoveryv1.EndpointSlice) bool { return true }

func awaitNoSlice(t *testing.T, slice *discoveryv1.EndpointSlice) {
	t.Helper()
	controllertest.Eventually(t, "EndpointSlice "+slice.Name+" to be deleted", func() error {
		err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(slice), &discoveryv1.EndpointSlice{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is not"), err)
	})
}

// TestAnEndpointSliceIsDeletedWithItsShadow checks that an EndpointSlice is deleted with its ShadowEndpointSlice,
// because it receives traffic as long as it exists.
func TestAnEndpointSliceIsDeletedWithItsShadow(t *testing.T) {
	namespace := provider.Extended(t, "deleting")
	m := provider.StartManager(t)
	for name, propagation := range map[string]metav1.DeletionPropagation{"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground} {
		shadow := shadowSlice(namespace, name, "deleting")
		provider.Create(t, shadow)
		slice := awaitSlice(t, namespace, name, "the EndpointSlice", exists)
		require.NoError(t, provider.Client.Delete(t.Context(), shadow, client.PropagationPolicy(propagation)))
		awaitNoSlice(t, slice)
	}
	m.Stop(t) // after the last response
	for _, name := range []string{"background", "foreground"} {
		assert.Len(t, m.Writes.About("DELETE", namespace, name), 1, "deletions of EndpointSlice %s", name)
	}
}

// TestOrphanedEndpointSlicesAreFoundAtTheStart checks that an EndpointSlice is found and deleted at the start if its
// ShadowEndpointSlice was deleted while no controller was running. A recreated ShadowEndpointSlice does not wait for
// the garbage collector. EndpointSlices that were released from their ShadowEndpointSlice are kept.
func TestOrphanedEndpointSlicesAreFoundAtTheStart(t *testing.T) {
	namespace := provider.Extended(t, "orphaning")
	first := provider.StartManager(t)
	shadows, made := map[string]*unstructured.Unstructured{}, map[string]*discoveryv1.EndpointSlice{}
	for _, name := range []string{"orphan", "released", "again"} {
		shadows[name] = shadowSlice(namespace, name, "orphaning")
		provider.Create(t, shadows[name])
		made[name] = awaitSlice(t, namespace, name, "the EndpointSlice", exists)
	}
	first.Stop(t)
	provider.Patch(t, made["released"], `{"metadata":{"ownerReferences":null}}`) // as kubectl delete --cascade=orphan does
	for _, shadow := range shadows {
		provider.Delete(t, shadow)
	}
	next := shadowSlice(namespace, "again", "orphaning")
	provider.Create(t, next)

	provider.StartManager(t)
	awaitNoSlice(t, made["orphan"])
	awaitSlice(t, namespace, "again", "the EndpointSlice of the next one", func(slice *discoveryv1.EndpointSlice) bool { return metav1.IsControlledBy(slice, next) })
	require.NoError(t, provider.Client.Get(t.Context(), client.ObjectKeyFromObject(made["released"]), &discoveryv1.EndpointSlice{}), "an EndpointSlice without an owner was deleted")
}
