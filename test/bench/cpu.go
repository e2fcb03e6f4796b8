// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/refract-project/refract/test/support/lab"
	"github.com/refract-project/refract/test/support/testenv"
)

// cpu is the CPU time that each process of both clusters has used so far.
type cpu map[string]time.Duration

func (b *bench) cpu() (cpu, error) {
	used := cpu{}
	for _, side := range []*lab.Side{b.Consumer, b.Provider} {
		for name, pid := range side.Processes() {
			usage, err := testenv.ProcessUsage(pid)
			if err != nil {
				return nil, fmt.Errorf("measuring %s of %s, %w", name, side.ID, err)
			}
			used[side.ID+" "+name] = usage.CPU
		}
	}
	return used, nil
}

// since returns the total CPU time that was used since an earlier measurement, and a text with the processes that used
// most of it.
func (c cpu) since(earlier cpu) (sum time.Duration, parts string) {
	const most = 5
	var names []string
	spent := cpu{}
	for name, used := range c {
		spent[name] = used - earlier[name]
		sum += spent[name]
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(spent[b] - spent[a]) })
	var largest []string
	for _, name := range names[:min(most, len(names))] {
		largest = append(largest, fmt.Sprintf("%s %.1f", name, spent[name].Seconds()))
	}
	return sum, strings.Join(largest, ", ")
}

// kubeletProcess is the name of the virtual kubelet in the list of the consumer's processes.
const kubeletProcess = lab.ConsumerID + " virtual-kubelet"

// collectionMost is the maximum percentage of the virtual kubelet's CPU time that garbage collection may use.
const collectionMost = 15

// phase runs do. It records the CPU time that both clusters and Refract's processes use during the call, and how much
// of it the virtual kubelet spends on garbage collection.
func (b *bench) phase(ctx context.Context, do func(context.Context) error) (total time.Duration, err error) {
	before, err := b.cpu()
	if err != nil {
		return 0, err
	}
	clock, err := b.goClock(ctx)
	if err != nil {
		return 0, err
	}
	if err := b.profile(ctx); err != nil {
		return 0, err
	}
	if err := do(ctx); err != nil {
		return 0, err
	}
	if err := b.profile(ctx); err != nil {
		return 0, err
	}
	after, err := b.cpu()
	if err != nil {
		return 0, err
	}
	clockAfter, err := b.goClock(ctx)
	if err != nil {
		return 0, err
	}
	total, parts := after.since(before)
	b.found("   CPU of everything meanwhile", "%.1f s", total.Seconds())
	b.found("   most of it", "%s", parts)
	if own := after[kubeletProcess] - before[kubeletProcess]; own > time.Second { // a shorter time is not accurate enough
		b.found("   the virtual kubelet's part", "%.1f %%", 100*own.Seconds()/total.Seconds())
		b.atMostTime("   of that for garbage collection", clockAfter.collection(clock), collectionMost, " %")
	}
	return total, nil
}

// goClock contains the virtual kubelet's CPU time in seconds, as estimated by the Go runtime. The estimates include
// waiting for a CPU, so they can only be compared with each other.
type goClock struct{ all, collecting float64 }

func (b *bench) goClock(ctx context.Context) (goClock, error) {
	metrics, err := b.KubeletMetrics(ctx)
	if err != nil {
		return goClock{}, err
	}
	sum := func(class string) float64 {
		return metrics.Sum("go_cpu_classes_"+class+"_cpu_seconds_total", nil)
	}
	return goClock{sum("total") - sum("idle"), sum("gc_total")}, nil
}

// collection returns the percentage of the time since an earlier measurement that was spent on garbage collection.
func (c goClock) collection(since goClock) float64 {
	return 100 * (c.collecting - since.collecting) / (c.all - since.all)
}

// profile writes the allocation profile of the virtual kubelet.
func (b *bench) profile(ctx context.Context) error {
	if b.profiles == "" {
		return nil
	}
	data, err := readProfile(ctx, "allocs")
	if err != nil {
		return err
	}
	return b.keepProfile("allocs", data)
}

// keepProfile writes a profile to the folder that the user has chosen. Without a folder it does nothing.
func (b *bench) keepProfile(name string, data []byte) error {
	if b.profiles == "" {
		return nil
	}
	b.profiled++
	return os.WriteFile(filepath.Join(b.profiles, fmt.Sprintf("%s-%02d.pb.gz", name, b.profiled)), data, 0o600)
}

// collections is the number of garbage collections before memory is measured. The second collection releases the
// content of pools. Each collection halves stacks that have become too large. Five collections are needed for the
// stacks of 3,000 goroutines that have each decoded one response.
const collections = 6

// collectGarbage triggers garbage collections in the virtual kubelet, so that its metrics show the memory that it
// needs, without garbage.
func (b *bench) collectGarbage(ctx context.Context) error {
	var data []byte
	for range collections {
		var err error
		if data, err = readProfile(ctx, "heap?gc=1"); err != nil {
			return err
		}
	}
	return b.keepProfile("heap", data)
}

// readProfile reads a profile from the virtual kubelet, which all benchmarks run with --enable-profiling.
func readProfile(ctx context.Context, name string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:6060/debug/pprof/"+name, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading the profile %s of the virtual kubelet, %s", name, response.Status)
	}
	return io.ReadAll(response.Body)
}
