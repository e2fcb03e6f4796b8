// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// groups lists the special interest groups of Kubernetes whose tests are run, in order.
var groups = []string{"storage", "node", "apps", "cli", "network"}

// test identifies one spec of the suite.
type test struct {
	group, name string
}

// serial reports whether the test must not run in parallel with others.
func (t test) serial() bool {
	return strings.Contains(t.name, "[Serial]") || strings.Contains(t.name, "[Disruptive]")
}

// slow reports whether the test takes several minutes.
func (t test) slow() bool { return strings.Contains(t.name, "[Slow]") }

// listTests returns the selected tests of the groups that are tagged Conformance or NodeConformance.
func listTests(ctx context.Context, binary, dir string, selects func(name string) bool) ([]test, error) {
	report := filepath.Join(dir, "tests.json")
	list := exec.CommandContext(ctx, binary, "--ginkgo.dry-run", "--ginkgo.label-filter=Conformance || NodeConformance", "--ginkgo.json-report="+report)
	if out, err := list.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("listing the tests, %w: %s", err, tail(string(out)))
	}
	data, err := os.ReadFile(report)
	if err != nil {
		return nil, err
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("reading the list of tests, %w", err)
	}
	var tests []test
	for _, group := range groups {
		for _, suite := range suites {
			for _, spec := range suite.SpecReports {
				name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
				if spec.LeafNodeType == "It" && spec.State == "passed" && strings.HasPrefix(name, "[sig-"+group+"]") && selects(name) {
					tests = append(tests, test{group: group, name: name})
				}
			}
		}
	}
	if len(tests) == 0 {
		return nil, fmt.Errorf("no test of the groups %s is selected", strings.Join(groups, ", "))
	}
	return tests, nil
}

// result is the result of a test.
type result struct {
	passed  bool
	skipped bool // the suite skipped the test because a requirement was missing
	seconds float64
	message string // first line of the failure
}

// junit contains the fields of a report that this program reads.
type junit struct {
	Suites []struct {
		Cases []struct {
			Name    string  `xml:"name,attr"`
			Status  string  `xml:"status,attr"`
			Time    float64 `xml:"time,attr"`
			Failure struct {
				Message string `xml:"message,attr"`
			} `xml:"failure"`
			Error struct {
				Message string `xml:"message,attr"`
			} `xml:"error"`
			Skipped struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// readResults returns the results in a report, by test. Tests that were not run are omitted.
func readResults(path string) (map[string]result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var report junit
	if err := xml.Unmarshal(data, &report); err != nil {
		return nil, fmt.Errorf("reading %s, %w", path, err)
	}
	results := map[string]result{}
	for _, suite := range report.Suites {
		for _, c := range suite.Cases {
			name, isTest := strings.CutPrefix(c.Name, "[It] ")
			if !isTest || c.Status == "skipped" && c.Time == 0 || c.Status == "pending" {
				continue // the test was not selected, or the time limit was reached before it started
			}
			message, _, _ := strings.Cut(c.Failure.Message+c.Error.Message+c.Skipped.Message, "\n")
			results[withoutLabels(name)] = result{passed: c.Status == "passed", skipped: c.Status == "skipped", seconds: c.Time, message: message}
		}
	}
	return results, nil
}

// withoutLabels removes the list of labels that a report appends to the name of a test. With the labels, every name
// would contain the name of its group.
func withoutLabels(name string) string {
	if i := strings.LastIndex(name, " ["); i > 0 && strings.Contains(name[i:], "sig-") {
		return name[:i]
	}
	return name
}

// runTests runs the tests one after the other in a single process. It returns the results of the tests that were run.
func (c *column) runTests(ctx context.Context, report string, tests []test) (map[string]result, error) {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = regexp.QuoteMeta(t.name)
	}
	log, err := os.Create(strings.TrimSuffix(report, ".xml") + ".log")
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	limit := c.limit * time.Duration(len(tests))
	cmd := c.command(c.suite, "--kubeconfig="+c.kubeconfig, "--kubectl-path="+c.kubectl, "--provider=local", "--allowed-not-ready-nodes=-1",
		"--ginkgo.no-color", "--ginkgo.v", "--ginkgo.focus= ("+strings.Join(names, "|")+")$", "--ginkgo.junit-report="+report, "--ginkgo.timeout="+limit.String(), "--ginkgo.grace-period=20s")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
		case <-ctx.Done(): // on SIGINT, the suite removes its objects and writes its report
			_ = cmd.Process.Signal(syscall.SIGINT)
		}
		select {
		case <-ended:
		case <-time.After(limit + time.Minute):
			_ = cmd.Process.Kill()
		}
	}()
	err = cmd.Wait()
	close(ended)
	if ctx.Err() != nil {
		_ = os.Remove(report) // the interrupted test is run again, because it has no report
		return nil, context.Cause(ctx)
	}
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	results, err := readResults(report)
	if err == nil && len(results) == 0 {
		err = errors.New("it ran no test")
	}
	if err != nil {
		return nil, fmt.Errorf("the suite has no results, see %s, %w", log.Name(), err)
	}
	return results, nil
}

// tail returns the end of a long output.
func tail(out string) string { return out[max(0, len(out)-2000):] }
