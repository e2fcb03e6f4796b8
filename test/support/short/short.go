// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package short leaves out slow tests under -short, which `make test-fast` sets. It has no dependencies, so that it does
// not slow down the build of small packages.
package short

import "testing"

// LeftOut begins the skip reason of a test that -short leaves out. `make test-fast` (hack/leftout) searches the output
// for it.
const LeftOut = "left out by -short: "

// NeedTime skips a test or benchmark under -short, because it takes long. The skip reason names the slow part: "it needs
// a control plane", for example.
func NeedTime(tb testing.TB, what string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip(LeftOut + "it needs " + what)
	}
}
