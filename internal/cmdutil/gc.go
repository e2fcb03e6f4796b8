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
	// overhead is what Go needs besides the heap.
	overhead = 16 << 20
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
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		for ctx.Err() == nil {
			metrics.Read(sample)
			debug.SetMemoryLimit(budget(sample[0].Value.Uint64()))
			select {
			case <-ctx.Done():
			case <-time.After(budgetEvery):
			}
		}
	}()
}

// budget leaves room for half as much again as is live, so that a collection is never due at once.
func budget(live uint64) int64 { return max(leastBudget, int64(live)*3/2+overhead) }
