// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/refract-project/refract/test/support/short"
)

// errShort is the error of Start under -short. A test that gets this error must call NeedControlPlane first.
var errShort = errors.New("no control plane is started under -short: call testenv.NeedControlPlane")

// NeedControlPlane skips a test or benchmark under -short, or if it is too late (short.IsLate), because it starts a
// control plane.
func NeedControlPlane(tb testing.TB) {
	tb.Helper()
	short.NeedTime(tb, "a control plane")
}

// IsShort reports whether -short is set. Unlike testing.Short, it can be called by the TestMain of a package and by
// programs without tests.
func IsShort() bool {
	if flag.Lookup("test.short") == nil {
		return false
	}
	if !flag.Parsed() {
		flag.Parse()
	}
	return testing.Short()
}

// LeavesOutClusters reports whether tests of clusters are left out at the moment, because -short is set or because it is
// too late. It is for a TestMain.
func LeavesOutClusters() bool { return IsShort() || short.IsLate() }

// RunWithoutClusters runs the tests of the package that do not use its clusters, and prints which tests it leaves
// out. It is for a TestMain if LeavesOutClusters.
func RunWithoutClusters(m *testing.M) int {
	tests, err := testsOfClusters(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if len(tests) > 0 {
		skip := "^(" + strings.Join(tests, "|") + ")$"
		if given := flag.Lookup("test.skip").Value.String(); given != "" {
			skip = given + "|" + skip
		}
		if err := flag.Set("test.skip", skip); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		reason := short.LeftOut
		if !testing.Short() {
			reason = short.LeftOutLate
		}
		fmt.Println(reason + strings.Join(tests, " "))
	}
	return m.Run()
}
