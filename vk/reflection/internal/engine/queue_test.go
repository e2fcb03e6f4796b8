// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/utils/clock"
)

// TestUrgentKeysOvertake checks that status updates overtake creations, which are not starved.
func TestUrgentKeysOvertake(t *testing.T) {
	t.Parallel()
	q := newQueue(clock.RealClock{}, func(key Key) bool { return strings.HasPrefix(key.Name, "urgent") }, func(Key) {})
	defer q.ShutDown()
	for i := range 3 {
		q.Add(Key{Name: fmt.Sprint("new-", i)})
	}
	for i := range 2 * urgentInARow {
		q.Add(Key{Name: fmt.Sprint("urgent-", i)})
	}
	if q.Len() != 3+2*urgentInARow {
		t.Fatalf("%d keys wait", q.Len())
	}
	var taken []string
	for q.Len() > 0 {
		key, _ := q.Get()
		taken = append(taken, key.Name)
		q.Done(key)
	}
	for i, want := range map[int]string{
		0: "urgent-0", urgentInARow - 1: fmt.Sprint("urgent-", urgentInARow-1), urgentInARow: "new-0", urgentInARow + 1: fmt.Sprint("urgent-", urgentInARow),
		2*urgentInARow + 1: "new-1", 2*urgentInARow + 2: "new-2",
	} {
		if taken[i] != want {
			t.Errorf("taken as number %d was %s, want %s, of %q", i, taken[i], want, taken)
		}
	}
}
