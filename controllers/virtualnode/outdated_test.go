// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/virtualnode"
)

// TestAVirtualNodeThatIsNotDeletedAnyMore checks that, if the deletion of a VirtualNode was undone by restoring a
// backup, the VirtualNode is not drained while the cache is outdated.
func TestAVirtualNodeThatIsNotDeletedAnyMore(t *testing.T) {
	vn := virtualNode(t, "cesena", "cesena")
	consumer.Patch(t, vn, `{"metadata":{"finalizers":["`+wire.VirtualNodeFinalizer+`"]}}`)
	c := virtualnode.NewController(controllertest.Behind(consumer.Client, controllertest.Deleted(vn)), consumer.Client, events.NewFakeRecorder(10), virtualnode.Options{Workers: 1, Clock: clock.RealClock{}})
	_, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(vn)})
	assert.ErrorContains(t, err, "is not as the cache shows it")
	node := &corev1.Node{}
	require.NoError(t, consumer.Client.Get(t.Context(), client.ObjectKey{Name: "cesena"}, node))
	assert.False(t, node.Spec.Unschedulable, "the node was cordoned")
	consumer.Patch(t, vn, `{"metadata":{"finalizers":null}}`)
}

// TestAWithdrawnDrain checks that the controller does not cordon the Node while the cache still contains a drain that
// was withdrawn, because refractctl uncordon may just have uncordoned the Node.
func TestAWithdrawnDrain(t *testing.T) {
	vn := virtualNode(t, "rimini", "rimini")
	consumer.Patch(t, vn, `{"metadata":{"finalizers":["`+wire.VirtualNodeFinalizer+`"],"annotations":{"`+wire.DrainAnnotation+`":"true"}}}`)
	outdated := &offloading.VirtualNode{}
	consumer.Get(t, outdated, vn.Namespace, vn.Name)
	consumer.Patch(t, vn, `{"metadata":{"annotations":{"`+wire.DrainAnnotation+`":null}}}`)
	c := virtualnode.NewController(controllertest.Behind(consumer.Client, outdated), consumer.Client, events.NewFakeRecorder(10), virtualnode.Options{Workers: 1, Clock: clock.RealClock{}})
	_, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(vn)})
	assert.True(t, apierrors.IsConflict(err), "%v", err)
	node := &corev1.Node{}
	consumer.Get(t, node, "", "rimini")
	assert.False(t, node.Spec.Unschedulable, "the node was cordoned")
	consumer.Patch(t, vn, `{"metadata":{"finalizers":null}}`)
}
