// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// differencesFile lists the tests that are expected to pass on a plain node alone.
//
//go:embed differences.yaml
var differencesFile []byte

// difference is a test that is expected to pass on a plain node alone.
type difference struct {
	Test   string `json:"test"`
	Reason string `json:"reason"`
}

// readDifferences returns the reasons of the expected differences, by the names of the tests.
func readDifferences() (map[string]string, error) {
	var list []difference
	if err := yaml.UnmarshalStrict(differencesFile, &list); err != nil {
		return nil, fmt.Errorf("reading differences.yaml, %w", err)
	}
	reasons := map[string]string{}
	for _, d := range list {
		if _, twice := reasons[d.Test]; twice || d.Test == "" || d.Reason == "" {
			return nil, fmt.Errorf("differences.yaml: each test is listed once, with a reason: %q", d.Test)
		}
		reasons[d.Test] = d.Reason
	}
	return reasons, nil
}

// printTable prints how many tests of each group pass on each node, and the tests that do not. The error says which differences are not expected.
func printTable(w io.Writer, tests []test, columns []string, results map[string]map[string]result) error {
	reasons, err := readDifferences()
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "\n%-10s", "group")
	for _, name := range columns {
		_, _ = fmt.Fprintf(w, "%12s", name)
	}
	_, _ = fmt.Fprintln(w)
	for _, group := range append(groups, "all") {
		line := fmt.Sprintf("%-10s", group)
		total := 0
		for _, name := range columns {
			passed := 0
			total = 0
			for _, t := range tests {
				if t.group == group || group == "all" {
					total++
					if results[name][t.name].passed {
						passed++
					}
				}
			}
			line += fmt.Sprintf("%12s", fmt.Sprintf("%d/%d", passed, total))
		}
		if total > 0 {
			_, _ = fmt.Fprintln(w, line)
		}
	}
	return printFailures(w, tests, results, len(columns) == 2, reasons)
}

// printFailures lists the failed tests by what they mean.
func printFailures(w io.Writer, tests []test, results map[string]map[string]result, both bool, reasons map[string]string) error {
	list := func(title string, of func(plain, virtual result, reason string) bool, line func(t test, reason string) string) (n int) {
		for _, t := range tests {
			reason := reasons[t.name]
			if !of(results[plainColumn][t.name], results[virtualColumn][t.name], reason) {
				continue
			}
			if n++; n == 1 {
				_, _ = fmt.Fprintf(w, "\n%s:\n", title)
			}
			_, _ = fmt.Fprintf(w, "  %s\n      %s\n", t.name, line(t, reason))
		}
		return n
	}
	message := func(name string) func(test, string) string {
		return func(t test, _ string) string { return results[name][t.name].message }
	}
	giveReason := func(_ test, reason string) string { return reason }
	if !both {
		for name := range results {
			list("Failed on the "+name+" node", func(plain, virtual result, _ string) bool { return !plain.passed && !virtual.passed }, message(name))
		}
		return nil
	}
	list("Failed on the plain node, too: nothing follows for the virtual one", func(plain, virtual result, _ string) bool { return !plain.passed && !virtual.passed }, message(plainColumn))
	list("Failed on the plain node alone", func(plain, virtual result, _ string) bool { return !plain.passed && virtual.passed }, message(plainColumn))
	list("Expected differences", func(plain, virtual result, reason string) bool {
		return plain.passed && !virtual.passed && reason != ""
	}, giveReason)
	list("Expected differences that were not seen: remove them from differences.yaml", func(plain, virtual result, reason string) bool { return plain.passed && virtual.passed && reason != "" }, giveReason)
	unexpected := list("Differences that are not expected", func(plain, virtual result, reason string) bool {
		return plain.passed && !virtual.passed && reason == ""
	}, message(virtualColumn))
	if unexpected > 0 {
		return fmt.Errorf("%d tests pass on the plain node alone and are not in %s", unexpected, strings.TrimSpace("test/conformance/differences.yaml"))
	}
	return nil
}
