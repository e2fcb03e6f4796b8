// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package short skips slow tests if -short is set, as `make test-fast` does. The package has no dependencies, so that
// it does not slow down the build of small packages.
package short

import "testing"

// LeftOut is the prefix of the skip message of a test that -short skips. `make test-fast` (hack/leftout) searches the
// output for this prefix.
const LeftOut = "left out by -short: "

// NeedTime skips a slow test or benchmark if -short is set. The argument what says why it is slow, for example "it
// needs a control plane".
func NeedTime(tb testing.TB, what string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip(LeftOut + "it needs " + what)
	}
}
