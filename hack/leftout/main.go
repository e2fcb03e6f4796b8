// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Leftout reads the output of `go test -short -json` and prints it in the format of `go test`: a line for each
// package, and the output of failed tests. At the end it lists the tests that were skipped because of -short:
//
//	go test -short -json ./... | go run ./hack/leftout
//
// It exits with status 1 if a test failed or the input cannot be read.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// mark is the prefix of the message about tests that -short skips. A skipped test prints this message. If a TestMain
// skips all tests of its package, it prints the prefix with their names (see test/support/short and
// test/support/testenv).
const mark = "left out by -short: "

const modulePath = "github.com/refract-project/refract/"

func main() {
	r := newReport(os.Stdout)
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "leftout:", err)
		os.Exit(1)
	}
	r.printLeftOut()
	if r.failed {
		os.Exit(1)
	}
}

// event is one line of the input (see go doc test2json).
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

// test identifies a test. The name is empty for a whole package.
type test struct{ pkg, name string }

// report collects the events of all packages.
type report struct {
	out    io.Writer
	output map[test][]string
	// marked contains the tests whose output contains the mark.
	marked map[test]bool
	// skipped contains the names of the skipped tests for each package.
	skipped map[string][]string
	failed  bool
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[test][]string{}, marked: map[test]bool{}, skipped: map[string][]string{}}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.add(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// add processes one line of the input. Lines that are not JSON are messages of the go command.
func (r *report) add(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		fmt.Fprintf(r.out, "%s", line)
		return
	}
	key := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output[key] = append(r.output[key], e.Output)
		if _, what, found := strings.Cut(e.Output, mark); found {
			r.addMarked(key, what)
		}
	case "skip":
		if e.Test != "" && r.marked[key] {
			r.skipped[e.Package] = append(r.skipped[e.Package], e.Test)
		}
		delete(r.output, key)
	case "fail":
		r.failed = true
		r.printFailure(key, e.Elapsed)
	case "pass":
		if e.Test == "" {
			fmt.Fprintf(r.out, "ok  \t%s\t%.1fs\n", e.Package, e.Elapsed)
		}
		delete(r.output, key)
	}
}

func (r *report) printFailure(key test, elapsed float64) {
	for _, line := range r.output[key] {
		if !strings.HasPrefix(line, "FAIL\t") {
			fmt.Fprint(r.out, line)
		}
	}
	if key.name == "" {
		fmt.Fprintf(r.out, "FAIL\t%s\t%.1fs\n", key.pkg, elapsed)
	}
	delete(r.output, key)
}

// addMarked records a skipped test. If a TestMain has printed a list of tests, it records all of them.
func (r *report) addMarked(key test, what string) {
	if key.name != "" {
		r.marked[key] = true
		return
	}
	r.skipped[key.pkg] = append(r.skipped[key.pkg], strings.Fields(what)...)
}

// printLeftOut prints the skipped tests.
func (r *report) printLeftOut() {
	tests := 0
	for _, names := range r.skipped {
		tests += len(names)
	}
	if tests == 0 {
		return
	}
	fmt.Fprintf(r.out, "\nLeft out, for `make test`: %d tests of %d packages.\n", tests, len(r.skipped))
	for _, pkg := range slices.Sorted(maps.Keys(r.skipped)) {
		fmt.Fprintf(r.out, "  %s: %s\n", strings.TrimPrefix(pkg, modulePath), strings.Join(r.skipped[pkg], " "))
	}
}
