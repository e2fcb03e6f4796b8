// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package poddrain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestEvicts(t *testing.T) {
	t.Parallel()
	ownedBy := func(kind string, controls bool) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: kind, Controller: ptr.To(controls)}}}}
	}
	assert.True(t, Evicts(&corev1.Pod{}))
	assert.True(t, Evicts(ownedBy("ReplicaSet", true)))
	assert.True(t, Evicts(ownedBy("DaemonSet", false)))
	assert.False(t, Evicts(ownedBy("DaemonSet", true)))
	assert.False(t, Evicts(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "digest"}}}))
}
