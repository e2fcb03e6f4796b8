// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/permissions"
	"github.com/refract-project/refract/test/support/testenv"
)

// testsAtOnce limits the number of parallel tests. Each test has its own clusters, and waits half of its time: until
// certificates are due, until signers that do not respond have timed out, or until processes have started. With more
// tests, the waiting clusters would keep a machine with two CPUs busy, and commands would exceed their deadlines.
const testsAtOnce = 2

// written contains the writes of Refract's processes in the clusters of all tests. All policies of the chart are
// enforced there.
var written permissions.Record

// TestMain runs the tests, and then compares the permissions of Refract's processes with their writes.
func TestMain(m *testing.M) {
	testenv.SetParallel(testsAtOnce)
	code := m.Run()
	if code == 0 && allTestsRan() {
		for _, problem := range permissions.Compare(rbac.Roles(), &written, unwritten) {
			fmt.Println(problem)
			code = 1
		}
	}
	os.Exit(code)
}

// allTestsRan reports whether all tests of the package were run, which means that no flag has excluded any.
func allTestsRan() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	if testenv.LeavesOutClusters() {
		fmt.Println("The permissions were not compared with the requests of the tests: some tests were left out.")
		return false
	}
	return true
}
