// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestFewStatusesAreWrittenAtOnce(t *testing.T) {
	var b batches
	now := time.Now()
	for range 100 {
		var due time.Time
		assert.Zero(t, b.wait(now, &due))
		now = now.Add(batchPeriod / batchAtOnce)
	}
}

func TestManyStatusesAreWrittenTogether(t *testing.T) {
	var b batches
	begin := time.Now()
	writtenAt := map[time.Duration]int{}
	due := make([]time.Time, 100)
	var waits [100]time.Duration
	for i := range due {
		at := time.Duration(i) * 10 * time.Millisecond
		waits[i] = at + b.wait(begin.Add(at), &due[i])
		if waits[i] == at {
			writtenAt[at.Truncate(batchPeriod)]++
		}
	}
	for i := range due {
		if due[i].IsZero() {
			continue
		}
		assert.Zero(t, b.wait(begin.Add(waits[i]), &due[i]), "held back twice")
		writtenAt[waits[i]]++
	}
	assert.Equal(t, map[time.Duration]int{0: batchAtOnce, batchPeriod: 50, 2 * batchPeriod: 45}, writtenAt)
}
