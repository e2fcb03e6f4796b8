// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestALeaseExpiresByOurClock(t *testing.T) {
	now := time.Now()
	lease := func(version string, seconds int32) *coordinationv1.Lease {
		// The renew time, which is an hour old, must be ignored, because it was set with the holder's clock.
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, Spec: coordinationv1.LeaseSpec{
			LeaseDurationSeconds: ptr.To(seconds), RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-time.Hour)))}}
	}
	var v renewal
	expired := func(after time.Duration, version string, seconds int32) bool {
		return v.leaseExpired(lease(version, seconds), 15*time.Second, now.Add(after))
	}
	assert.False(t, expired(0, "1", 15), "it may have been renewed just now")
	assert.False(t, expired(14*time.Second, "1", 15))
	assert.False(t, expired(15*time.Second, "2", 15), "it was renewed")
	assert.False(t, expired(29*time.Second, "2", 15))
	assert.True(t, expired(30*time.Second, "2", 15))
	assert.False(t, expired(31*time.Second, "3", 60), "its holder has set it longer")
	assert.False(t, expired(90*time.Second, "3", 60))
	assert.True(t, expired(91*time.Second, "3", 60))
}
