// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// gcPercent lets the heap grow to four times what is live before it is collected, as long as that stays below the budget.
	gcPercent = 300
	// leastBudget of all memory that Go manages. Below it, fewer collections are worth more than memory.
	leastBudget = 64 << 20
	// reserve for what grows before the budget does.
	reserve = 8 << 20
	// budgetEvery is how often the budget follows what is live.
	budgetEvery = time.Second
)

// SpareGC collects garbage as rarely as a budget of memory allows, which grows with what is live: our processes keep caches of
// some tens of megabytes and make garbage fast, but only while objects cross. GOGC or GOMEMLIMIT in the environment leave
// everything to Go. It returns at once; the budget follows until ctx ends.
func SpareGC(ctx context.Context) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, set := os.LookupEnv(name); set {
			return
		}
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(leastBudget)
	go func() {
		for ctx.Err() == nil {
			debug.SetMemoryLimit(budget(memory()))
			select {
			case <-ctx.Done():
			case <-time.After(budgetEvery):
			}
		}
	}()
}

// memory returns what is live on the heap, and what Go needs besides the heap: stacks above all.
func memory() (live, besides uint64) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	besides = samples[1].Value.Uint64()
	for _, heap := range samples[2:] {
		besides -= min(besides, heap.Value.Uint64())
	}
	return samples[0].Value.Uint64(), besides
}

// budget leaves room for half as much again as is live, so that a collection is never due at once.
func budget(live, besides uint64) int64 {
	return max(leastBudget, int64(live)*3/2+int64(besides)+reserve)
}
