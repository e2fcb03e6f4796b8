// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// differencesFile lists the tests that may pass only on the plain node.
//
//go:embed differences.yaml
var differencesFile []byte

// difference is a test that may pass only on the plain node.
type difference struct {
	Test   string `json:"test"`
	Reason string `json:"reason"`
}

// readDifferences returns the expected differences.
func readDifferences() ([]difference, error) {
	var list []difference
	if err := yaml.UnmarshalStrict(differencesFile, &list); err != nil {
		return nil, fmt.Errorf("reading differences.yaml, %w", err)
	}
	return list, nil
}

// table contains the results to compare, by the column and the name of the test.
type table struct {
	tests   []test
	columns []string
	results map[string]map[string]result
	reasons map[string]string
}

func newTable(tests []test, columns []string, results map[string]map[string]result, expected []difference) *table {
	reasons := map[string]string{}
	for _, d := range expected {
		reasons[d.Test] = d.Reason
	}
	return &table{tests: tests, columns: columns, results: results, reasons: reasons}
}

// print writes how many tests of each group have passed on each node, and lists the tests that have not passed on both
// nodes. It returns an error if a difference is not expected.
func (t *table) print(w io.Writer) error {
	_, _ = fmt.Fprintf(w, "\n%-10s", "group")
	for _, name := range t.columns {
		_, _ = fmt.Fprintf(w, "%12s", name)
	}
	_, _ = fmt.Fprintln(w)
	for _, group := range groups {
		t.printGroup(w, group, func(g string) bool { return g == group })
	}
	t.printGroup(w, "all", func(string) bool { return true })
	if len(t.columns) == 1 {
		name := t.columns[0]
		t.list(w, "Failed", func(s test) (bool, string) {
			r := t.results[name][s.name]
			return !r.passed && !r.skipped, r.message
		})
		return nil
	}
	return t.printDifferences(w)
}

// printGroup prints one line. For each column, the line contains the number of tests that have passed and the number of
// tests that were not skipped.
func (t *table) printGroup(w io.Writer, title string, contains func(group string) bool) {
	line, some := fmt.Sprintf("%-10s", title), false
	for _, name := range t.columns {
		passed, of := 0, 0
		for _, s := range t.tests {
			r := t.results[name][s.name]
			if !contains(s.group) || r.skipped {
				continue
			}
			some = true
			if of++; r.passed {
				passed++
			}
		}
		line += fmt.Sprintf("%12s", fmt.Sprintf("%d/%d", passed, of))
	}
	if some {
		_, _ = fmt.Fprintln(w, line)
	}
}

func (t *table) printDifferences(w io.Writer) error {
	outcome := func(s test) (plain, virtual result, reason string) {
		return t.results[plainColumn][s.name], t.results[virtualColumn][s.name], t.reasons[s.name]
	}
	t.list(w, "Skipped by the suite on one node or both", func(s test) (bool, string) {
		plain, virtual, _ := outcome(s)
		return plain.skipped || virtual.skipped, cmp.Or(plain.message, virtual.message)
	})
	t.list(w, "Failed on the plain node, too", func(s test) (bool, string) {
		plain, virtual, _ := outcome(s)
		return failed(plain) && failed(virtual), plain.message
	})
	t.list(w, "Failed on the plain node alone", func(s test) (bool, string) {
		plain, virtual, _ := outcome(s)
		return failed(plain) && virtual.passed, plain.message
	})
	t.list(w, "Expected differences", func(s test) (bool, string) {
		plain, virtual, reason := outcome(s)
		return plain.passed && failed(virtual) && reason != "", reason
	})
	t.list(w, "Expected differences that were not seen", func(s test) (bool, string) {
		plain, virtual, reason := outcome(s)
		return plain.passed && virtual.passed && reason != "", reason
	})
	unexpected := t.list(w, "Differences that are not expected", func(s test) (bool, string) {
		plain, virtual, reason := outcome(s)
		return plain.passed && failed(virtual) && reason == "", virtual.message
	})
	if unexpected > 0 {
		return fmt.Errorf("%d tests pass on the plain node, fail on the virtual one, and are not in test/conformance/differences.yaml", unexpected)
	}
	return nil
}

func failed(r result) bool { return !r.passed && !r.skipped }

// list prints the title and the tests that meet the condition is, each with a remark. It returns the number of these
// tests.
func (t *table) list(w io.Writer, title string, is func(test) (bool, string)) (n int) {
	for _, s := range t.tests {
		matches, remark := is(s)
		if !matches {
			continue
		}
		if n++; n == 1 {
			_, _ = fmt.Fprintf(w, "\n%s:\n", title)
		}
		_, _ = fmt.Fprintf(w, "  %s\n      %s\n", s.name, remark)
	}
	return n
}
