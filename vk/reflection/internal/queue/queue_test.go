// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

// TestUrgentKeysOvertake checks that urgent keys overtake other keys, but do not starve them.
func TestUrgentKeysOvertake(t *testing.T) {
	t.Parallel()
	q := newQueue(clock.RealClock{}, &slowLane{}, func(key Key) bool { return strings.HasPrefix(key.Name, "urgent") }, func(Key) {})
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

// TestReevaluationsWaitForChanges checks that keys in the slow lane are taken last but not starved, and leave the lane
// when their objects change.
func TestReevaluationsWaitForChanges(t *testing.T) {
	t.Parallel()
	slow := &slowLane{}
	q := newQueue(clock.RealClock{}, slow, func(Key) bool { return true }, func(Key) {})
	defer q.ShutDown()
	reevaluate := func(name string) {
		slow.demote(Key{Name: name})
		q.Add(Key{Name: name})
	}
	for i := range 3 {
		reevaluate(fmt.Sprint("slow-", i))
	}
	for i := range slowInARow {
		q.Add(Key{Name: fmt.Sprint("changed-", i)})
	}
	q.Add(Key{Name: "slow-1"})  // the object changes while its key is in the slow lane
	reevaluate("changed-0")     // the key keeps its place
	reevaluate("slow-2")        // the key also keeps its place
	q.Add(Key{Name: "changed"}) // this key is queued after slow-1, which has left the slow lane
	require.Equal(t, 3+slowInARow+1, q.Len())
	var taken []string
	for q.Len() > 0 {
		key, _ := q.Get()
		taken = append(taken, key.Name)
		q.Done(key)
	}
	require.Equal(t, []string{"changed-0", "changed-1"}, taken[:2])
	require.Equal(t, []string{"slow-0", "slow-1", "changed", "slow-2"}, taken[slowInARow:])
}
