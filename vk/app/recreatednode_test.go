// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/test/support/lab"
)

// testRecreatedNode deletes the Node while the pod of testPod is running. It checks that the Node that is created
// again, with another UID, owns its Lease, that the pod still exists, and that the pod's status still follows the
// provider.
func testRecreatedNode(ctx context.Context, t *testing.T, l *lab.Lab) {
	home, away := l.Consumer.Client, l.Provider.Client.CoreV1().Pods("shop-home")
	local, err := home.CoreV1().Pods("shop").Get(ctx, "web", metav1.GetOptions{})
	require.NoError(t, err)
	remote, err := away.Get(ctx, "web", metav1.GetOptions{})
	require.NoError(t, err)
	before, err := home.CoreV1().Nodes().Get(ctx, lab.NodeName, metav1.GetOptions{})
	require.NoError(t, err)

	require.NoError(t, home.CoreV1().Nodes().Delete(ctx, lab.NodeName, metav1.DeleteOptions{}))
	require.NoError(t, l.Wait(ctx, "another node", func(ctx context.Context) (string, error) {
		node, err := home.CoreV1().Nodes().Get(ctx, lab.NodeName, metav1.GetOptions{})
		if err != nil || node.UID == before.UID {
			return fmt.Sprintf("it is the former one, or none (%v)", err), nil
		}
		lease, err := home.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, lab.NodeName, metav1.GetOptions{})
		if err != nil || len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != node.UID {
			return fmt.Sprintf("its lease belongs to %v (%v)", lease.OwnerReferences, err), nil
		}
		return "", nil
	}))
	require.NoError(t, l.AwaitNodeReady(ctx))

	// Now the provider's pod is deleted. The existing local pod must show the status of the pod that replaces it.
	require.NoError(t, away.Delete(ctx, "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	require.NoError(t, l.Wait(ctx, "the status of the next pod", func(ctx context.Context) (string, error) {
		pod, err := home.CoreV1().Pods("shop").Get(ctx, "web", metav1.GetOptions{})
		switch {
		case err != nil:
			return "", err
		case pod.UID != local.UID || pod.DeletionTimestamp != nil:
			return "", fmt.Errorf("pod web was replaced by %s, or is being deleted: %v", pod.UID, pod.DeletionTimestamp)
		case pod.Status.Phase != corev1.PodRunning || len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].RestartCount == 0:
			return fmt.Sprintf("it is %s, %+v", pod.Status.Phase, pod.Status.ContainerStatuses), nil
		}
		return "", nil
	}))
	next, err := away.Get(ctx, "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotEqual(t, remote.UID, next.UID)
	if out, err := l.Kubectl(ctx, "--context=home", "-n=shop", "logs", "web"); err != nil || out == "" {
		t.Errorf("logs: %q, %v", out, err)
	}
}
