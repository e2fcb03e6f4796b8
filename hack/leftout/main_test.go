// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func run(t *testing.T, input string) (printed string, failed bool) {
	t.Helper()
	var out strings.Builder
	r := newReport(&out)
	require.NoError(t, r.read(strings.NewReader(input)))
	r.printLeftOut()
	return out.String(), r.failed
}

func TestReportNamesWhatIsLeftOut(t *testing.T) {
	printed, failed := run(t, `
{"Action":"run","Package":"github.com/refract-project/refract/some","Test":"TestReal"}
{"Action":"output","Package":"github.com/refract-project/refract/some","Test":"TestReal","Output":"    x_test.go:1: left out by -short: it needs a control plane\n"}
{"Action":"skip","Package":"github.com/refract-project/refract/some","Test":"TestReal","Elapsed":0}
{"Action":"output","Package":"github.com/refract-project/refract/some","Test":"TestRoot","Output":"    x_test.go:1: needs root\n"}
{"Action":"skip","Package":"github.com/refract-project/refract/some","Test":"TestRoot","Elapsed":0}
{"Action":"pass","Package":"github.com/refract-project/refract/some","Test":"TestFine","Elapsed":1}
{"Action":"pass","Package":"github.com/refract-project/refract/some","Elapsed":1.5}
{"Action":"output","Package":"github.com/refract-project/refract/whole","Output":"left out by -short: TestOne TestTwo\n"}
{"Action":"pass","Package":"github.com/refract-project/refract/whole","Elapsed":0.1}
`[1:])
	assert.False(t, failed)
	assert.Equal(t, `ok  	github.com/refract-project/refract/some	1.5s
ok  	github.com/refract-project/refract/whole	0.1s

Left out, for `+"`make test`"+`: 3 tests of 2 packages.
  some: TestReal
  whole: TestOne TestTwo
`, printed)
}

func TestReportPrintsFailures(t *testing.T) {
	printed, failed := run(t, `
go: some message
{"Action":"build-output","ImportPath":"p","Output":"p.go:1: undefined: x\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"not of interest\n"}
{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":1}
{"Action":"output","Package":"p","Test":"TestBad","Output":"    p_test.go:7: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":1}
{"Action":"output","Package":"p","Output":"FAIL\tp\t2s\n"}
{"Action":"fail","Package":"p","Elapsed":2}
`[1:])
	assert.True(t, failed)
	assert.Equal(t, "go: some message\np.go:1: undefined: x\n    p_test.go:7: wrong\nFAIL\tp\t2.0s\n", printed)
}
