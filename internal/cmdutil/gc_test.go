// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import "testing"

func TestGarbageIsCollectedInPortions(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 16 << 20: 200, 32 << 20: 100, 50 << 20: 64, 500 << 20: 50} {
		if got := percent(live); got != want {
			t.Errorf("with %d MiB live the heap grows by %d %%, want %d", live>>20, got, want)
		}
	}
}
