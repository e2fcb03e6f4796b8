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

// testsAtOnce limits the number of parallel tests. Each test has its own clusters, and waits half of its time: for
// certificates to become due, for signers that do not respond, or for processes to start. With more tests, a machine
// with two CPUs would be busy with the clusters that wait, and commands would exceed their deadlines.
const testsAtOnce = 2

// written are the writes of Refract's processes in the clusters of all tests, under all policies of the chart.
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

// allTestsRan reports whether no flag has left tests of the package out.
func allTestsRan() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return !testenv.IsShort()
}
