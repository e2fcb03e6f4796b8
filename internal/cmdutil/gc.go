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
	// leastGarbage is how much garbage there is at least before it is collected. A collection scans all that is live: less
	// of it, more often, would cost more time than the memory is worth.
	leastGarbage = 28 << 20
	// morePercent is how much garbage there is besides, of what is live beyond leastGarbage.
	morePercent = 160
	// mostPercent bounds what is made of that with little that is live.
	mostPercent = 400
)

// SpareGC collects garbage in portions of one size, as long as little is live: our processes keep caches of some tens of
// megabytes and make garbage fast, but only while objects cross. (A limit of memory would have Go collect all the time once
// many objects were deleted: what they leave between those that stay counts against it.) Near
// the limit in MemoryLimitVariable Go collects as often as needed. GOGC or GOMEMLIMIT in the environment leave everything to Go. It returns at once; the percentage follows each collection until ctx ends.
func SpareGC(ctx context.Context) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, set := os.LookupEnv(name); set {
			return
		}
	}
	if limit, err := strconv.ParseInt(os.Getenv(MemoryLimitVariable), 10, 64); err == nil && limit > 0 {
		debug.SetMemoryLimit(limit / 10 * 9) // the rest is what Go does not count
	}
	follow(ctx, &collected{})
}

// MemoryLimitVariable is the environment variable with the memory limit of the container, in bytes.
const MemoryLimitVariable = "REFRACT_MEMORY_LIMIT"

// collected is garbage from the beginning: it is found by the next collection. It has a pointer, and so a place of its own.
type collected struct{ _ *collected }

// follow sets the percentage now, and again after each collection. The live heap can grow by tens of megabytes within a second.
func follow(ctx context.Context, c *collected) {
	if ctx.Err() != nil {
		return
	}
	debug.SetGCPercent(percent(live()))
	runtime.SetFinalizer(c, func(*collected) { follow(ctx, &collected{}) })
}

// live is what the last collection has left on the heap, and stacks, which count likewise.
func live() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}

// percent is by how much the heap may grow until it is collected.
func percent(live uint64) int {
	garbage := uint64(leastGarbage)
	if live > leastGarbage {
		garbage += (live - leastGarbage) * morePercent / 100
	}
	return int(min(100*garbage/max(live, 1), mostPercent))
}
