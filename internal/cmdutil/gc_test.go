// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestGarbageIsCollectedInPortions(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 16 << 20: 175, 28 << 20: 100, 56 << 20: 129, 560 << 20: 156} {
		if got := gcPercent(live); got != want {
			t.Errorf("with %d MiB live the heap grows by %d %%, want %d", live>>20, got, want)
		}
	}
}

func TestMemoryLimitOfTheContainer(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	t.Setenv(MemoryLimitVariable, "1000000000")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	SpareGC(ctx, 60)
	if limit := debug.SetMemoryLimit(-1); limit != 600_000_000 {
		t.Errorf("the memory limit is %d", limit)
	}
}

// TestPercentageFollows checks that the percentage is adjusted to the live heap after each collection.
func TestPercentageFollows(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer cancel()
	adjustGC(ctx, &collected{})
	held := make([]byte, 4*leastGarbage)
	for deadline := time.Now().Add(2 * time.Minute); ; {
		runtime.GC()
		now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		if metrics.Read(now); now[0].Value.Uint64() <= 150 { // the percentage is 400 if the heap is empty
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the heap may grow by %d %% with %d MiB live", now[0].Value.Uint64(), len(held)>>20)
		}
	}
	runtime.KeepAlive(held)
}
