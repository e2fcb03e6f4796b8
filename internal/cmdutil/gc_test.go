// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import "testing"

// The budget always has room for what is live, whatever that is.
func TestBudgetFollowsWhatIsLive(t *testing.T) {
	for _, live := range []uint64{0, 1 << 20, 40 << 20, 500 << 20, 4 << 30} {
		if got := budget(live, 20<<20); got < leastBudget || got < int64(live)*5/4+20<<20 {
			t.Errorf("budget(%d MiB) = %d MiB", live>>20, got>>20)
		}
	}
}
