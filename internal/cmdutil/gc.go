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
	// leastGarbage is how much garbage may accumulate before a collection, even if the live heap is small. A collection
	// scans the whole live heap. Collecting less garbage more often would cost CPU time, and save little memory.
	leastGarbage = 28 << 20
	// morePercent determines how much garbage, in addition to leastGarbage, may accumulate before a collection. It is a
	// percentage of the part of the live heap that exceeds leastGarbage.
	morePercent = 160
	// mostPercent limits the percentage that results for a small live heap.
	mostPercent = 400
)

// SpareGC makes Go collect garbage less often while the live heap is small. The processes of Refract have caches of
// several dozen megabytes, and produce garbage quickly, but only while objects are being reflected. If there were only
// a memory limit, Go would collect continuously after many objects were deleted, because the gaps between the remaining
// objects count as used memory. Near the limit in MemoryLimitVariable, Go collects as often as needed. If GOGC or
// GOMEMLIMIT is set in the environment, SpareGC has no effect. SpareGC returns immediately, and adjusts the percentage
// after each collection until ctx is done.
func SpareGC(ctx context.Context, share int64) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, set := os.LookupEnv(name); set {
			return
		}
	}
	if limit, err := strconv.ParseInt(os.Getenv(MemoryLimitVariable), 10, 64); err == nil && limit > 0 {
		debug.SetMemoryLimit(limit / 100 * share)
	}
	adjustGC(ctx, &collected{})
}

const (
	// MemoryShare is the share, in per cent, of the container's memory limit that Go may use in processes with large caches.
	MemoryShare = 90
	// GatewayMemoryShare is lower, because WireGuard in the process fills the memory that Go may use with packets, and the
	// buffers of the kernel need the rest.
	GatewayMemoryShare = 60
)

// MemoryLimitVariable is the environment variable with the memory limit of the container, in bytes.
const MemoryLimitVariable = "REFRACT_MEMORY_LIMIT"

// collected is an object that the next garbage collection frees. This triggers its finalizer. It contains a pointer, so
// that it is allocated separately.
type collected struct{ _ *collected }

// adjustGC sets the percentage now and after each collection. This must happen often, because the live heap can grow by
// several dozen megabytes within a second.
func adjustGC(ctx context.Context, c *collected) {
	if ctx.Err() != nil {
		return
	}
	debug.SetGCPercent(gcPercent(liveBytes()))
	runtime.SetFinalizer(c, func(*collected) { adjustGC(ctx, &collected{}) })
}

// liveBytes returns the size of the heap after the last collection, plus the size of the stacks. GOGC is a percentage
// of their sum.
func liveBytes() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}

// gcPercent returns by how many per cent the heap may grow before the next collection.
func gcPercent(live uint64) int {
	garbage := uint64(leastGarbage)
	if live > leastGarbage {
		garbage += (live - leastGarbage) * morePercent / 100
	}
	return int(min(100*garbage/max(live, 1), mostPercent))
}
