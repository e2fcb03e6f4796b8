// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/refract-project/refract/internal/testenv/machine"
)

const (
	// patience of a test: what takes longer does not happen, even on a machine that is busy.
	patience = 2 * time.Minute
	// lookEvery is how often a test looks: it is to go on as soon as it can.
	lookEvery = 10 * time.Millisecond
)

// ForTest starts clusters for a test or benchmark (one with defaults when no options are given) and stops them at its end.
// It ends the test with the reason when they do not come up.
func ForTest(tb testing.TB, opts ...Options) []*Cluster {
	tb.Helper()
	if len(opts) == 0 {
		opts = []Options{{}}
	}
	opts = slices.Clone(opts)
	for i := range opts {
		if opts[i].Log == nil {
			opts[i].Log = tb.Logf
		}
	}
	clusters, err := StartAll(context.Background(), opts...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		for _, c := range clusters {
			if err := c.Stop(); err != nil {
				tb.Error(err)
			}
		}
	})
	return clusters
}

// Main starts a cluster for all tests of a package, runs them, stops it, and returns the exit code.
func Main(m *testing.M, cluster **Cluster, options Options) int {
	started, err := Start(context.Background(), options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*cluster = started
	code := m.Run()
	if err := started.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Eventually waits until check returns no error. After two minutes it ends the test with the last one.
func Eventually(tb testing.TB, check func() error) {
	tb.Helper()
	if err := Wait(check); err != nil {
		tb.Fatal(err)
	}
}

// Wait is Eventually for callers that end the test themselves.
func Wait(check func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(lookEvery)
	}
}

// nodesVariable, when it is set, makes it a failure that real nodes cannot be started.
const nodesVariable = "REFRACT_NODES"

// NeedNodes skips a test if real nodes cannot be started, with the missing requirement as reason.
func NeedNodes(tb testing.TB) {
	tb.Helper()
	err := NodesHere()
	switch {
	case err == nil:
	case os.Getenv(nodesVariable) != "":
		tb.Fatal(err)
	default:
		tb.Skipf("no real nodes: %v", err)
	}
}

// NodesForTest is ForTest for clusters with real nodes, on one Network, with a Registry.
func NodesForTest(tb testing.TB, opts ...Options) []*Cluster {
	tb.Helper()
	NeedNodes(tb)
	network, err := machine.NewNetwork()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := network.Close(); err != nil {
			tb.Error(err)
		}
	})
	registry, err := NewRegistry(tb.Context(), network)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = registry.Close() })
	opts = slices.Clone(opts)
	for i := range opts {
		opts[i].Network, opts[i].Registry = network, registry
	}
	return ForTest(tb, opts...)
}
