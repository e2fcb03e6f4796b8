// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
)

const (
	// leastGarbage is the minimum amount of garbage before a collection. A collection scans the whole live heap, so
	// collecting a smaller amount more often would cost more CPU time than the saved memory is worth.
	leastGarbage = 28 << 20
	// morePercent is the additional garbage before a collection, as a percentage of the live heap beyond leastGarbage.
	morePercent = 160
	// mostPercent limits the resulting percentage if the live heap is small.
	mostPercent = 400
)

// SpareGC collects garbage in portions of equal size while the live heap is small. The processes of Refract keep
// caches of some tens of megabytes and produce garbage fast, but only while objects are reflected. With only a memory
// limit, Go would collect all the time after many objects were deleted, because the gaps between the remaining
// objects count as used memory. Near the limit in MemoryLimitVariable, Go collects as often as needed. GOGC or
// GOMEMLIMIT in the environment disable SpareGC. SpareGC returns immediately. Until ctx is done, it adjusts the
// percentage after each collection.
func SpareGC(ctx context.Context) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, set := os.LookupEnv(name); set {
			return
		}
	}
	if limit, err := strconv.ParseInt(os.Getenv(MemoryLimitVariable), 10, 64); err == nil && limit > 0 {
		debug.SetMemoryLimit(limit / 10 * 9) // the remaining tenth is for memory that Go does not count
	}
	adjustGC(ctx, &collected{})
}

// MemoryLimitVariable is the environment variable with the memory limit of the container, in bytes.
const MemoryLimitVariable = "REFRACT_MEMORY_LIMIT"

// collected is an object that the next garbage collection frees, which triggers its cleanup. It contains a pointer, so
// that it is allocated separately.
type collected struct{ _ *collected }

// adjustGC sets the percentage, and sets it again after each collection. The live heap can grow by tens of megabytes
// within a second.
func adjustGC(ctx context.Context, c *collected) {
	if ctx.Err() != nil {
		return
	}
	debug.SetGCPercent(gcPercent(liveBytes()))
	runtime.SetFinalizer(c, func(*collected) { adjustGC(ctx, &collected{}) })
}

// liveBytes returns the size of the heap after the last collection plus the size of the stacks, because Go counts
// both.
func liveBytes() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}

// gcPercent returns the growth of the heap that triggers the next collection, in per cent.
func gcPercent(live uint64) int {
	garbage := uint64(leastGarbage)
	if live > leastGarbage {
		garbage += (live - leastGarbage) * morePercent / 100
	}
	return int(min(100*garbage/max(live, 1), mostPercent))
}
