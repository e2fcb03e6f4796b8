// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/refract-project/refract/host/fuel"
)

// workloads are the exports of the workload, each with an argument with which it runs for some microseconds.
var workloads = []struct {
	name string
	n    uint64
}{{"hash", 20}, {"sorting", 500}, {"maps", 200}, {"text", 200}, {"fib", 16}, {"tree", 12}, {"jsons", 4}, {"format", 8}, {"match", 2}}

// BenchmarkFuel runs the workload alternately with and without fuel. It reports the fastest run of each, so that other
// work on the machine affects both of them equally. "overhead-%" is the cost of fuel.
func BenchmarkFuel(b *testing.B) {
	r := runtime(b)
	bare := instantiate(b, r, workload)
	fueled := instantiate(b, r, instrument(b, workload, fuel.Options{}))
	setFuel(fueled, math.MaxInt64)
	for _, w := range workloads {
		b.Run(w.name, func(b *testing.B) {
			with, without := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
			f, g := bare.ExportedFunction(w.name), fueled.ExportedFunction(w.name)
			for b.Loop() {
				without = min(without, timed(b, f, w.n))
				with = min(with, timed(b, g, w.n))
			}
			b.ReportMetric(float64(without.Nanoseconds()), "bare-ns")
			b.ReportMetric(float64(with.Nanoseconds()), "fuel-ns")
			b.ReportMetric(100*(float64(with)/float64(without)-1), "overhead-%")
		})
	}
}

func timed(b *testing.B, f api.Function, n uint64) time.Duration {
	stack := [1]uint64{n}
	start := time.Now()
	if err := f.CallWithStack(context.Background(), stack[:]); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// BenchmarkInstrument measures the time that instrumentation adds when a module is loaded.
func BenchmarkInstrument(b *testing.B) {
	b.SetBytes(int64(len(workload)))
	for b.Loop() {
		if _, err := fuel.Instrument(workload, fuel.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
