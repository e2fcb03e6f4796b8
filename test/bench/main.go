// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the cost of offloading on two real control planes with simulated nodes. `make bench-e2e`
// runs it and prints a table of figures with their goals. Durations are ratios within one run, because absolute
// durations depend mostly on the machine. The exit code is 1 if a goal is missed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/test/support/lab"
)

func main() {
	pods := flag.Int("pods", 1000, "replicas of the Deployment that is timed")
	services := flag.Int("services", 1000, "Services, ConfigMaps and Secrets that are reflected, each; of other kinds it is a hundred")
	countsOnly := flag.Bool("counts-only", false, "measure what hardly depends on the machine (writes, memory), without plain nodes: for machines that are busy")
	profiles := flag.String("profiles", "", "folder for allocation profiles of the virtual kubelet, one for each phase (compare with: go tool pprof -base BEFORE AFTER)")
	only := flag.Bool("pods-only", false, "measure the pods of the Deployment, and nothing else")
	scale := flag.Bool("scale", false, "measure the pods, the Services beside them and the deletion of the pods, without plain nodes and ratios to them; for numbers that take long")
	adopt := flag.Int("adopt", 0, "measure a restart of the virtual kubelet with so many objects, and nothing else")
	timeout := flag.Duration("timeout", 20*time.Minute, "give up after this long")
	flag.Parse()
	if *pods < least || *services < least {
		fmt.Fprintf(os.Stderr, "bench: --pods and --services have to be %d at least, to have some to change and some to delete\n", least)
		os.Exit(2)
	}
	if *scale && *only {
		fmt.Fprintln(os.Stderr, "bench: --scale measures Services as well: leave out one of --scale and --pods-only")
		os.Exit(2)
	}
	ctrllog.SetLogger(logr.Discard()) // a library requires a logger; its messages are also in the returned errors
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("the benchmark took longer than %s", *timeout))
	defer cancel()
	options := lab.Options{ConsumerNodes: 2, ProviderNodes: 2, APIServerSupport: true, KubeletArgs: kubeletArgs, Log: progress}
	if err := run(ctx, options, &bench{pods: *pods, services: *services, countsOnly: *countsOnly, podsOnly: *only, scale: *scale, profiles: *profiles, adopt: *adopt}); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		cancel()
		stop()
		os.Exit(1)
	}
}

// least is the minimum number of objects of each kind. It is sufficient for two rounds and one object that is never
// changed.
const least = 4*missed + 1

// busySlack is the factor by which counts may miss their goals on a busy machine, which repeats a write after a timeout
// or makes it so late that it counts in the next measurement. A second write per object misses them nevertheless.
const busySlack = 1.1

// kubeletArgs are the flags that are set in addition to the flags of the lab.
var kubeletArgs = []string{"--enable-profiling", "--enable-storage", "--remote-real-storage-class-name=" + lab.RemoteStorageClass}

func run(ctx context.Context, options lab.Options, b *bench) (err error) {
	l, err := lab.Up(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Down()) }()
	b.Lab = l
	if b.countsOnly {
		b.table.Slack = busySlack
	}
	measures := []func(context.Context) error{
		b.join, b.plainPods, b.offloadedPods, b.offloadedDeleted, b.comparedPods, b.offloadedAgain, b.plainObjects, b.reflected, b.podsWithTokens, b.latency, b.restart, b.awayAndKilled, b.resync, b.namespaces, b.flips, b.resources,
	}
	if b.adopt > 0 {
		measures = []func(context.Context) error{b.join, b.adopted, b.resources}
	}
	if b.countsOnly {
		measures = []func(context.Context) error{b.join, b.offloadedPods, b.offloadedDeleted, b.offloadedAgain, b.reflected, b.podsWithTokens, b.restart, b.awayAndKilled, b.resync, b.namespaces, b.resources}
	}
	if b.podsOnly {
		measures = []func(context.Context) error{b.join, b.plainPods, b.offloadedPods, b.offloadedDeleted, b.comparedPods, b.resources}
	}
	if b.scale {
		measures = []func(context.Context) error{b.join, b.offloadedPods, b.reflectedServices, b.offloadedDeleted, b.resources}
	}
	for _, measure := range measures {
		if err := measure(ctx); err != nil {
			return errors.Join(err, b.report()) // prints the figures even after an error
		}
	}
	return b.report()
}

// progress prints a line to standard error, so that standard output contains only the table.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "… "+format+"\n", args...) }
