// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resourceshare

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestPauses checks that the pause doubles, up to its limit, each time the provider deletes a ResourceSlice
// immediately. It must be reset after a ResourceSlice has existed for at least as long as the pause.
func TestPauses(t *testing.T) {
	now, s := time.Unix(1000, 0), &share{}
	const pause = 15 * time.Second
	deleted := func(after time.Duration) time.Duration {
		now = now.Add(after)
		wait := s.wait(now, pause)
		now = now.Add(wait)
		assert.LessOrEqual(t, s.wait(now, pause), time.Duration(0), "the pause is over")
		s.missing, s.created = time.Time{}, now
		return wait
	}
	for _, want := range []time.Duration{15, 30, 60, 120, 240, 480, 600, 600} {
		assert.Equal(t, want*time.Second, deleted(time.Second))
	}
	assert.True(t, s.repeated)
	assert.False(t, s.isSettled(now.Add(599*time.Second)))
	assert.True(t, s.isSettled(now.Add(600*time.Second)))
	assert.Equal(t, pause, deleted(600*time.Second))
	assert.False(t, s.repeated)
}
