// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"slices"
	"testing"
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
