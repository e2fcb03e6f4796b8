// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/internal/refractctl/release"
)

// TestStarting checks that a rollout counts as starting if it has just begun, but not if it is complete, stuck or old.
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
		assert.Equal(t, test.want, (&Examination{Now: now}).isStarting(d), "%s %s, %s ago", test.status, test.reason, test.age)
	}
	assert.False(t, (&Examination{Now: now}).isStarting(&appsv1.Deployment{}))
}

// TestNotFound checks that the remedy for several installations is to uninstall one of them.
func TestNotFound(t *testing.T) {
	t.Parallel()
	several := fmt.Errorf("%w, by the Deployments a/b and c/d: uninstall one", release.ErrSeveral)
	assert.Equal(t, several.Error(), notFound(several))
	assert.Equal(t, "whether Refract is installed is unknown: it is odd", notFound(errors.New("it is odd")))
}
