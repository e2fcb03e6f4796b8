// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package poddrain decides which pods a drain evicts from a virtual node. The virtualnode controller evicts them, and
// refractctl waits until none of them is left.
package poddrain

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Evicts reports whether a drain evicts the pod. A drain evicts neither the pods of DaemonSets nor static pods, because
// they would be recreated immediately. These pods are deleted with the node.
func Evicts(pod metav1.Object) bool {
	owner := metav1.GetControllerOf(pod)
	_, static := pod.GetAnnotations()[corev1.MirrorPodAnnotationKey]
	return !static && (owner == nil || owner.Kind != "DaemonSet")
}
