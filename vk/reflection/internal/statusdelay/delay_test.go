// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package statusdelay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/cache"
)

func TestAStatusSettlesOncePerCopy(t *testing.T) {
	t.Parallel()
	p, s, now := New(time.Second), &Status{}, time.Now()
	assert.Equal(t, time.Second, p.Settle(s, "a", now))
	assert.Equal(t, 400*time.Millisecond, p.Settle(s, "a", now.Add(600*time.Millisecond)))
	assert.LessOrEqual(t, p.Settle(s, "a", now.Add(2*time.Second)), time.Duration(0))
	assert.Equal(t, time.Second, p.Settle(s, "b", now.Add(2*time.Second)), "another copy")
}

func TestFewStatusesAreWrittenAtOnce(t *testing.T) {
	t.Parallel()
	p, now := New(0), time.Now()
	for range 100 {
		assert.Zero(t, p.Batch(&Status{}, now))
		now = now.Add(batchPeriod / batchAtOnce)
	}
}

func TestManyStatusesAreWrittenTogether(t *testing.T) {
	t.Parallel()
	p, begin := New(0), time.Now()
	var statuses [100]Status
	written := map[time.Duration]int{} // the keys are times since begin
	for i := range statuses {
		at := time.Duration(i) * 10 * time.Millisecond
		wait := p.Batch(&statuses[i], begin.Add(at))
		written[(at+wait).Truncate(batchPeriod)]++
	}
	assert.Equal(t, map[time.Duration]int{0: batchAtOnce, batchPeriod: 50, 2 * batchPeriod: 45}, written)
	for i := range statuses {
		assert.Zero(t, p.Batch(&statuses[i], begin.Add(2*batchPeriod)), "held back twice")
	}
	statuses[0].Written()
	for range batchAtOnce {
		p.Batch(&Status{}, begin.Add(2*batchPeriod))
	}
	assert.NotZero(t, p.Batch(&statuses[0], begin.Add(2*batchPeriod)), "the next change")
}

// TestStatusesThatAreNotWrittenYet checks that a status counts only once towards batchAtOnce, even if it is passed to
// Batch several times because another delay still applies.
func TestStatusesThatAreNotWrittenYet(t *testing.T) {
	t.Parallel()
	p, now := New(0), time.Now()
	var paced Status
	for range 10 * batchAtOnce {
		assert.Zero(t, p.Batch(&paced, now))
	}
	for range batchAtOnce - 1 {
		assert.Zero(t, p.Batch(&Status{}, now))
	}
	assert.Equal(t, batchPeriod, p.Batch(&Status{}, now))
}

func TestObjectsArePacedApart(t *testing.T) {
	t.Parallel()
	p, now, key := New(0), time.Now(), cache.ObjectName{Name: "web"}
	for range PaceBurst {
		assert.Zero(t, p.Pace(key, now))
	}
	for range 3 { // an attempt that is delayed does not count as a write
		assert.Equal(t, time.Second, p.Pace(key, now))
	}
	assert.Zero(t, p.Pace(cache.ObjectName{Name: "other"}, now))
	assert.Zero(t, p.Pace(key, now.Add(time.Second)))
	assert.NotZero(t, p.Pace(key, now.Add(time.Second)))
	assert.Equal(t, 2, p.Len())
	p.Forget(key)
	assert.Zero(t, p.Pace(key, now.Add(time.Second)))
}
