// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Command conformance runs tests of Kubernetes' end-to-end suite on a virtual node and on a plain node of the same
// cluster, and compares the results. Tests that pass only on the plain node must be listed in differences.yaml, with
// the reason. `make test-conformance` runs this command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/test/support/testenv/tools"
)

// The columns of the table, in order.
const (
	plainColumn   = "plain"
	virtualColumn = "virtual"
)

// options contains the values of the flags.
type options struct {
	focus, skip     *regexp.Regexp
	columns         []string
	parallel, batch int
	timeout         time.Duration
	results         string
	resume          bool
}

func main() {
	o, err := parseOptions()
	if err != nil {
		fmt.Fprintf(os.Stderr, "conformance: %v; see --help\n", err)
		os.Exit(2)
	}
	// controller-runtime requires a logger. The returned errors contain the messages.
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "\nconformance: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// selects reports whether a test with this name should be run.
func (o options) selects(name string) bool {
	return o.focus.MatchString(name) && (o.skip == nil || !o.skip.MatchString(name))
}

func parseOptions() (o options, err error) {
	focus := flag.String("focus", "", "run only the tests whose names match this regular expression")
	skip := flag.String("skip", "", `leave out the tests whose names match this regular expression; those with [Slow] wait for five minutes and more`)
	column := flag.String("column", "", "run on one node only: plain or virtual (default: both, and compare)")
	flag.IntVar(&o.parallel, "parallel", 4, "how many tests run at once; those that must be alone are")
	flag.IntVar(&o.batch, "batch", 8, "how many tests one process of the suite runs, one after the other; it takes some seconds to start")
	flag.DurationVar(&o.timeout, "timeout", 10*time.Minute, "time limit of a test; a batch has the sum of those of its tests")
	flag.StringVar(&o.results, "results", "dist/conformance", "folder of the JUnit reports and logs; only --resume keeps what it has")
	flag.BoolVar(&o.resume, "resume", false, "run only the tests that have no result in the folder yet")
	flag.Parse()
	if flag.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", flag.Arg(0))
	}
	if o.columns = []string{plainColumn, virtualColumn}; *column != "" {
		if !slices.Contains(o.columns, *column) {
			return o, fmt.Errorf("unknown column %q", *column)
		}
		o.columns = []string{*column}
	}
	if o.parallel < 1 || o.batch < 1 {
		return o, errors.New("--parallel and --batch are 1 or more")
	}
	if o.results, err = filepath.Abs(o.results); err != nil {
		return o, err
	}
	if o.focus, err = regexp.Compile(*focus); err != nil || *skip == "" {
		return o, err
	}
	o.skip, err = regexp.Compile(*skip)
	return o, err
}

func run(ctx context.Context, o options) (err error) {
	if err := tools.NodesHere(); err != nil {
		return fmt.Errorf("this needs root on Linux, and real nodes to start: %w", err)
	}
	begun := time.Now()
	logf := func(format string, args ...any) {
		fmt.Printf("%6.0f s  %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
	}
	expected, err := readDifferences()
	if err != nil {
		return err
	}
	l, err := startLab(ctx, logf)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	tests, err := listTests(ctx, l.suite, l.Path(""), o.selects)
	if err != nil {
		return err
	}
	logf("%d tests", len(tests))
	results := map[string]map[string]result{}
	for _, name := range o.columns {
		c := &column{lab: l, name: name, dir: filepath.Join(o.results, name), limit: o.timeout, logf: logf}
		if results[name], err = c.run(ctx, o, tests); err != nil {
			return errors.Join(err, errors.New("what was finished is kept: continue with --resume"))
		}
	}
	return newTable(tests, o.columns, results, expected).print(os.Stdout)
}
