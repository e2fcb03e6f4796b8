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

	"github.com/refract-project/refract/test/support/short"
	"github.com/refract-project/refract/test/support/testenv/machine"
	"github.com/refract-project/refract/test/support/testenv/registry"
	"github.com/refract-project/refract/test/support/testenv/tools"
)

const (
	// patience limits how long a test waits. It is long enough even for a busy machine.
	patience = 2 * time.Minute
	// A condition is checked after minPollInterval, and then less and less often, down to every maxPollInterval: the
	// interval is a tenth of the time waited so far. So no wait is more than a tenth too long, and tests that wait do
	// not take the processors from those that compute.
	minPollInterval = 10 * time.Millisecond
	maxPollInterval = 500 * time.Millisecond
)

// ForTest starts clusters for a test or benchmark and stops them at the end of the test. Without options, it starts
// one cluster with the defaults. If a cluster cannot be started, the test fails. Under -short, or
// if it is too late to begin (see the package short), it skips the test.
func ForTest(tb testing.TB, opts ...Options) []*Cluster {
	tb.Helper()
	NeedControlPlane(tb)
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

// Main starts a cluster for all tests of a package, runs them, stops it, and returns the exit code. If LeavesOutClusters,
// it starts no cluster, and leaves out the tests that use the cluster.
func Main(m *testing.M, cluster **Cluster, options Options) int {
	if LeavesOutClusters() {
		return RunWithoutClusters(m)
	}
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

// Eventually calls check until it returns no error. After two minutes, it ends the test with the last error.
func Eventually(tb testing.TB, check func() error) {
	tb.Helper()
	if err := Wait(check); err != nil {
		tb.Fatal(err)
	}
}

// Wait calls check until it returns no error. After two minutes, it returns the last error.
func Wait(check func() error) error {
	begun := time.Now()
	for {
		err := check()
		waited := time.Since(begun)
		if err == nil || waited > patience {
			return err
		}
		time.Sleep(min(max(waited/10, minPollInterval), maxPollInterval))
	}
}

// nodesVariable is an environment variable. If it is set, tests that need real nodes fail instead of being skipped if
// real nodes cannot be started.
const nodesVariable = "REFRACT_NODES"

// NeedNodes skips a test under -short, or if real nodes cannot be started. The reason names the missing requirement.
func NeedNodes(tb testing.TB) {
	tb.Helper()
	short.NeedTime(tb, "real nodes")
	err := tools.NodesHere()
	switch {
	case err == nil:
	case os.Getenv(nodesVariable) != "":
		tb.Fatal(err)
	default:
		tb.Skipf("no real nodes: %v", err)
	}
}

// NodesForTest starts clusters with real nodes as ForTest does. All of them use one Network and one Registry.
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
	registry, err := registry.New(tb.Context(), network)
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
