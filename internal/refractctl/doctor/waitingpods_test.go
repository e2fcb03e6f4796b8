// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/refract-project/refract/api/wire"
)

// TestWaitingPodsAreListedByOwner checks that pods that wait on a virtual node are listed by their owners. Offloaded
// pods and pods that are being deleted are not listed.
func TestWaitingPodsAreListedByOwner(t *testing.T) {
	t.Parallel()
	pod := func(name, reason string, owner ...metav1.OwnerReference) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, OwnerReferences: owner}, Status: corev1.PodStatus{Phase: corev1.PodPending, Reason: reason}}
	}
	agent := metav1.OwnerReference{Kind: "DaemonSet", Name: "agent", Controller: ptr.To(true)}
	going := pod("going", wire.OffloadingBackOffReason)
	going.DeletionTimestamp = &metav1.Time{}
	owners := waitingOwners([]corev1.Pod{pod("agent-a", wire.OffloadingBackOffReason, agent), pod("agent-b", wire.OffloadingBackOffReason, agent),
		pod("bare", wire.OffloadingBackOffReason), pod("fine", "", agent), going})
	assert.Equal(t, "DaemonSet kube-system/agent (2 pods), Pod kube-system/bare", listOwners(owners))
}
