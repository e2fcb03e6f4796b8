// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
)

func TestCountPods(t *testing.T) {
	for expected, status := range map[string]appsv1.DeploymentStatus{
		"2/2": {Replicas: 2, AvailableReplicas: 2},
		"2/3": {Replicas: 3, AvailableReplicas: 2}, // an update
		"0/2": {},                                  // a quota, or an admission policy, refuses the pods
	} {
		assert.Equal(t, expected, countPods(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)}, Status: status}))
	}
}
