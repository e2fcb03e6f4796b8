// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A rollout that has just begun is no error; one that is over, stuck or old is.
func TestStarting(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, test := range []struct {
		status corev1.ConditionStatus
		reason string
		age    time.Duration
		want   bool
	}{
		{corev1.ConditionTrue, "ReplicaSetUpdated", time.Second, true},
		{corev1.ConditionTrue, "ReplicaSetUpdated", time.Hour, false},
		{corev1.ConditionTrue, "NewReplicaSetAvailable", time.Second, false},
		{corev1.ConditionFalse, "ProgressDeadlineExceeded", time.Second, false},
	} {
		d := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentProgressing, Status: test.status, Reason: test.reason, LastUpdateTime: metav1.NewTime(now.Add(-test.age)),
		}}}}
		assert.Equal(t, test.want, (&Patient{Now: now}).starting(d), "%s %s, %s ago", test.status, test.reason, test.age)
	}
	assert.False(t, (&Patient{Now: now}).starting(&appsv1.Deployment{}))
}
