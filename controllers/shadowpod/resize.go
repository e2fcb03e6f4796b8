// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// resizeAtOnce writes all sizes of a pod in one request, as its user did, so that quotas and kubelets judge them
// together. If it fails with an error that isDecided accepts, the API server rejects some of the sizes, and they must
// be written separately.
func (c *Controller) resizeAtOnce(ctx context.Context, pod *corev1.Pod, sizes []newSize) (*corev1.Pod, error) {
	var all jsonpatch.Patch
	for _, size := range sizes {
		all = append(all, size.patch...)
	}
	patch, err := all.For(pod.UID)
	if err != nil {
		return nil, err
	}
	resized := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := c.client.SubResource("resize").Patch(ctx, resized, patch, client.FieldOwner(wire.ShadowPodFieldManager)); err != nil {
		return nil, fmt.Errorf("patching resize of pod %s/%s, %w", pod.Namespace, pod.Name, err)
	}
	return resized, nil
}
