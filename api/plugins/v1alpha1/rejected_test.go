// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestRejectedRevisions checks that each rejection is remembered once, and the oldest is dropped at the maximum.
func TestRejectedRevisions(t *testing.T) {
	var s ReflectionPluginStatus
	assert.False(t, s.IsRejected(""))
	for i := range maxEarlierRejectedRevisions + 2 {
		s.RejectRevision(fmt.Sprint("r", i))
		assert.True(t, s.IsRejected(s.RejectedRevision))
	}
	assert.False(t, s.IsRejected("r0"))
	assert.True(t, s.IsRejected("r1"))
	s.RejectRevision("r20")
	assert.Equal(t, "r20", s.RejectedRevision)
	assert.Equal(t, []string{"r21", "r19"}, s.EarlierRejectedRevisions[:2])
	assert.Len(t, s.EarlierRejectedRevisions, maxEarlierRejectedRevisions)
}
