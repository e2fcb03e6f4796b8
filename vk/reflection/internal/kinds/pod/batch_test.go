// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	var due [100]time.Time
	written := map[time.Duration]int{} // keyed by the time since begin
	for i := range due {
		at := time.Duration(i) * 10 * time.Millisecond
		wait := b.wait(begin.Add(at), &due[i])
		written[(at+wait).Truncate(batchPeriod)]++
	}
	assert.Equal(t, map[time.Duration]int{0: batchAtOnce, batchPeriod: 50, 2 * batchPeriod: 45}, written)
	for i := range due {
		assert.Zero(t, b.wait(begin.Add(2*batchPeriod), &due[i]), "held back twice")
	}
}

// TestStatusesThatAreNotWrittenYet checks that a status that is not written yet, for another reason, counts once among
// the statuses that are not held back.
func TestStatusesThatAreNotWrittenYet(t *testing.T) {
	var b batches
	now := time.Now()
	var paced time.Time // belongs to a status that is not written, for another reason
	for range 10 * batchAtOnce {
		assert.Zero(t, b.wait(now, &paced))
	}
	for range batchAtOnce - 1 {
		assert.Zero(t, b.wait(now, new(time.Time)))
	}
	assert.Equal(t, batchPeriod, b.wait(now, new(time.Time)))
}

func TestUrgentStatuses(t *testing.T) {
	status := func(phase, ready string) map[string]any {
		return map[string]any{"phase": phase, "conditions": []any{map[string]any{"type": "Ready", "status": ready}}}
	}
	ready, unready := status("Running", "True"), status("Running", "False")
	for name, tc := range map[string]struct {
		present, next map[string]any
		deleted, want bool
	}{
		"becomes Ready":          {unready, ready, false, false},
		"first status":           {nil, unready, false, false},
		"no longer Ready":        {ready, unready, false, true},
		"Ready is not reported":  {ready, map[string]any{"phase": "Running"}, false, true},
		"Succeeded":              {unready, status("Succeeded", "False"), false, true},
		"being deleted":          {unready, ready, true, true},
		"only the label is new":  {ready, nil, false, false},
		"label of what is ended": {status("Failed", "False"), nil, false, true},
	} {
		local := &unstructured.Unstructured{Object: map[string]any{}}
		if tc.deleted {
			local.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
		}
		assert.Equal(t, tc.want, isUrgent(&podView{local: local, status: tc.present}, tc.next), name)
	}
}
