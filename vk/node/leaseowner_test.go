// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// testRecreatedNode checks that each time the Node is deleted, as with kubectl delete node, the new Node becomes the
// owner of the Lease, so that the garbage collector does not delete the Lease. If the garbage collector was faster, the
// next Lease belongs to the new Node from the beginning.
func testRecreatedNode(t *testing.T, s *suite) {
	s.createVirtualNode()
	controller, _ := s.kubelet()
	<-controller.Ready()
	for range 3 {
		before := s.node()
		s.awaitLease(before.UID)
		require.NoError(t, s.admin.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		s.expect("node", func(ctx context.Context) string {
			var n corev1.Node
			if err := s.admin.Get(ctx, types.NamespacedName{Name: name}, &n); err != nil {
				return err.Error()
			}
			if n.UID == before.UID {
				return "it is the former one"
			}
			return ready(corev1.ConditionTrue, "")(&n)
		})
		lease := s.awaitLease(s.node().UID)
		for range 3 {
			lease = s.awaitRenewal(lease)
		}
	}
	present, lease := s.node(), s.awaitLease(s.node().UID)
	leases, err := clientcoordinationv1.NewForConfig(s.consumer.Config())
	require.NoError(t, err)
	watch, err := leases.Leases(corev1.NamespaceNodeLease).Watch(t.Context(), metav1.ListOptions{ResourceVersion: lease.ResourceVersion})
	require.NoError(t, err)
	defer watch.Stop()
	require.NoError(t, s.admin.Delete(t.Context(), lease.DeepCopy()))
	for event := range watch.ResultChan() {
		if next := event.Object.(*coordinationv1.Lease); next.Name == name && next.UID != lease.UID {
			require.Equal(t, present.UID, next.OwnerReferences[0].UID, "the owner of the first lease")
			return
		}
	}
}

// testLeaseOfANodeThatIsGone checks that the Node becomes the owner of an existing Lease whose owner, an earlier Node,
// was deleted while no garbage collector was running.
func testLeaseOfANodeThatIsGone(t *testing.T, s *suite) {
	s.createVirtualNode()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name,
		Finalizers:      []string{"example.com/hold"}, // prevents the garbage collector from removing the Lease
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: "gone"}}}}
	require.NoError(t, client.IgnoreNotFound(s.admin.Delete(t.Context(), lease.DeepCopy())))
	s.expect("lease", func(ctx context.Context) string {
		if err := s.admin.Create(ctx, lease.DeepCopy()); err != nil {
			return err.Error()
		}
		return ""
	})
	controller, _ := s.kubelet()
	<-controller.Ready()
	s.awaitLease(s.node().UID)
	require.NoError(t, s.admin.Patch(t.Context(), lease, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

// node reads the Node from the API server.
func (s *suite) node() (n corev1.Node) {
	s.Helper()
	require.NoError(s, s.admin.Get(s.Context(), types.NamespacedName{Name: name}, &n))
	return n
}

// awaitLease waits until the Node with the given UID is the only owner of the Lease, and returns the Lease.
func (s *suite) awaitLease(owner types.UID) (lease coordinationv1.Lease) {
	s.Helper()
	s.expect("lease", func(ctx context.Context) string {
		if err := s.admin.Get(ctx, types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: name}, &lease); err != nil {
			return err.Error()
		}
		if len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != owner {
			return fmt.Sprintf("it belongs to %v, want %s", lease.OwnerReferences, owner)
		}
		return ""
	})
	return lease
}

// awaitRenewal waits until the Lease is renewed. It fails if the Lease was deleted and created again.
func (s *suite) awaitRenewal(last coordinationv1.Lease) (renewed coordinationv1.Lease) {
	s.Helper()
	s.expect("renewal", func(ctx context.Context) string {
		err := s.admin.Get(ctx, types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: name}, &renewed)
		switch {
		case err != nil:
			return err.Error()
		case !renewed.Spec.RenewTime.After(last.Spec.RenewTime.Time):
			return "it is not renewed"
		}
		return ""
	})
	if renewed.UID != last.UID || renewed.OwnerReferences[0].UID != last.OwnerReferences[0].UID {
		s.Errorf("the lease was deleted, and created again with the owners %v", renewed.OwnerReferences)
	}
	return renewed
}
