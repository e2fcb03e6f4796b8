// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package short leaves out slow tests: all of them if -short is set, as `make test-fast` does, and those that would begin
// too late for a run with a time limit, as in CI on a slow machine. The package has no dependencies, so that it does not
// slow down the build of small packages.
package short

import (
	"flag"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

const (
	// LeftOut is the prefix of the skip message of a test that -short skips. `make test-fast` (hack/leftout) searches
	// the output for this prefix.
	LeftOut = "left out by -short: "
	// LeftOutLate is the prefix of the skip message of a test that would begin after the time in the environment
	// variable REFRACT_TESTS_UNTIL (seconds since 1970).
	LeftOutLate = "left out because the time in " + untilVariable + " has passed: "

	untilVariable = "REFRACT_TESTS_UNTIL"
)

// NeedTime skips a slow test or benchmark if -short is set, or if it is too late to begin it. The argument what names the
// reason, for example "a control plane".
func NeedTime(tb testing.TB, what string) {
	tb.Helper()
	switch {
	case testing.Short():
		tb.Skip(LeftOut + "it needs " + what)
	case IsLate():
		tb.Skip(LeftOutLate + "it needs " + what)
	}
}

// IsLate reports whether it is too late to begin a slow test. A value of the variable that is not a number means that it
// never is. It is never too late for tests that are selected with -run, for example because they have failed before.
func IsLate() bool {
	if run := flag.Lookup("test.run"); run != nil && run.Value.String() != "" {
		return false
	}
	// go test caches a result together with the variables that the test reads with package os. The value differs in each
	// run, so no result would be used again. Only the result of a test that leaves something out depends on it.
	value, _ := syscall.Getenv(untilVariable)
	until, err := strconv.ParseInt(value, 10, 64)
	if err != nil || time.Now().Unix() < until {
		return false
	}
	_ = os.Getenv(untilVariable)
	return true
}
