// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDifferencesAreDocumented checks that each expected difference has a reason, is listed once, and is documented.
func TestDifferencesAreDocumented(t *testing.T) {
	list, err := readDifferences()
	require.NoError(t, err)
	docs, err := os.ReadFile("../../docs/compatibility.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(docs), "## Kubernetes' conformance tests")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	names := map[string]bool{}
	for _, d := range list {
		assert.NotEmpty(t, d.Reason, d.Test)
		assert.False(t, names[d.Test], "listed twice: %s", d.Test)
		names[d.Test] = true
		assert.Contains(t, section, "| `"+d.Test+"` |", "docs/compatibility.md")
	}
	assert.Equal(t, len(list), strings.Count(section, "| `["), "docs/compatibility.md lists tests that are not in differences.yaml")
}

const report = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="Kubernetes e2e suite">
    <testcase name="[BeforeSuite]" status="passed" time="1"></testcase>
    <testcase name="[It] [sig-node] Pods a [NodeConformance] [Conformance] [sig-node, NodeConformance, Conformance]" status="passed" time="2.5"></testcase>
    <testcase name="[It] [sig-node] Pods b [sig-node]" status="failed" time="3"><failure message="no pod&#xA;second line" type="failed"></failure></testcase>
    <testcase name="[It] [sig-node] Pods c [sig-node]" status="timedout" time="4"><error message="timed out" type="timedout"></error></testcase>
    <testcase name="[It] [sig-node] Pods d [sig-node]" status="skipped" time="0.1"><skipped message="skipped - needs two nodes"></skipped></testcase>
    <testcase name="[It] [sig-node] Pods e [sig-node]" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
  </testsuite>
</testsuites>`

func TestReadResults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0001.xml")
	require.NoError(t, os.WriteFile(path, []byte(report), 0o600))
	results, err := readResults(path)
	require.NoError(t, err)
	assert.Equal(t, map[string]result{
		"[sig-node] Pods a [NodeConformance] [Conformance]": {passed: true, seconds: 2.5},
		"[sig-node] Pods b": {seconds: 3, message: "no pod"},
		"[sig-node] Pods c": {seconds: 4, message: "timed out"},
		"[sig-node] Pods d": {skipped: true, seconds: 0.1, message: "skipped - needs two nodes"},
	}, results)
}

func TestTable(t *testing.T) {
	tests := []test{{"storage", "same"}, {"node", "expected"}, {"node", "unexpected"}, {"node", "broken"}, {"apps", "mended"}, {"apps", "absent"}}
	pass, fail := result{passed: true}, result{message: "what went wrong"}
	results := map[string]map[string]result{
		plainColumn:   {"same": pass, "expected": pass, "unexpected": pass, "broken": fail, "mended": pass, "absent": {skipped: true}},
		virtualColumn: {"same": pass, "expected": fail, "unexpected": fail, "broken": fail, "mended": pass, "absent": {skipped: true}},
	}
	expected := []difference{{"expected", "host ports"}, {"mended", "was broken"}}
	var out strings.Builder
	err := newTable(tests, []string{plainColumn, virtualColumn}, results, expected).print(&out)
	require.ErrorContains(t, err, "1 tests")
	assert.Equal(t, `
group            plain     virtual
storage            1/1         1/1
node               2/3         0/3
apps               1/1         1/1
all                4/5         2/5

Skipped by the suite on one node or both:
  absent
      

Failed on the plain node, too:
  broken
      what went wrong

Expected differences:
  expected
      host ports

Expected differences that were not seen:
  mended
      was broken

Differences that are not expected:
  unexpected
      what went wrong
`, out.String())
}
