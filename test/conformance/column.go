// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// column is a column of the table. It contains the results of the tests on one node.
type column struct {
	*lab
	name  string
	dir   string        // folder for the reports
	limit time.Duration // time limit of one test
	logf  func(string, ...any)

	mu      sync.Mutex
	results map[string]result
	reports int // number of reports so far
	total   int
}

// run runs the tests that have no result yet. It returns the results of all tests. Tests that cannot run in parallel
// are run last.
func (c *column) run(ctx context.Context, o options, tests []test) (map[string]result, error) {
	if err := c.openReports(o.resume); err != nil {
		return nil, err
	}
	maps.DeleteFunc(c.results, func(name string, _ result) bool {
		return !slices.ContainsFunc(tests, func(t test) bool { return t.name == name })
	})
	c.total = len(tests)
	var slow [][]test
	var together, alone []test
	for _, t := range tests {
		switch _, done := c.results[t.name]; {
		case done:
		case t.serial():
			alone = append(alone, t)
		case t.slow():
			slow = append(slow, []test{t})
		default:
			together = append(together, t)
		}
	}
	if len(slow)+len(together)+len(alone) == 0 {
		return c.results, nil
	}
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer stop()
	if c.name == virtualColumn {
		if err := c.steer(ctx); err != nil {
			return nil, err
		}
		watcher.Go(func() { c.offloadNamespaces(watching, c.logf) })
	}
	// If there are few tests, the batches are smaller, so that every process gets some of them.
	batch := max(1, min(o.batch, len(together)/o.parallel))
	if err := c.runBatches(ctx, slices.AppendSeq(slow, slices.Chunk(together, batch)), o.parallel); err != nil {
		return nil, err
	}
	return c.results, c.runBatches(ctx, slices.Collect(slices.Chunk(alone, o.batch)), 1)
}

// openReports reads the reports of an earlier run if resume is true. Otherwise it deletes them.
func (c *column) openReports(resume bool) error {
	c.results = map[string]result{}
	if !resume {
		if err := os.RemoveAll(c.dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	reports, err := filepath.Glob(filepath.Join(c.dir, "*.xml"))
	if err != nil {
		return err
	}
	for _, report := range reports {
		// A report that cannot be read is incomplete. Its tests are run again.
		if results, err := readResults(report); err == nil {
			maps.Copy(c.results, results)
		}
		var number int
		if _, err := fmt.Sscanf(filepath.Base(report), "%d.xml", &number); err == nil {
			c.reports = max(c.reports, number)
		}
	}
	return nil
}

func (c *column) runBatches(ctx context.Context, batches [][]test, parallel int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, batch := range batches {
		group.Go(func() error { return c.runBatch(ctx, batch) })
	}
	return group.Wait()
}

// runBatch runs several tests in one process. If a test exceeds the time limit or ends the process, the remaining tests
// are run in a new process.
func (c *column) runBatch(ctx context.Context, batch []test) error {
	results, err := c.runTests(ctx, c.newReport(), batch)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && len(batch) == 1:
		c.record(batch[0], result{message: err.Error()})
		return nil
	case err != nil:
		for _, t := range batch {
			if err := c.runBatch(ctx, []test{t}); err != nil {
				return err
			}
		}
		return nil
	}
	var left []test
	for _, t := range batch {
		if r, ran := results[t.name]; ran {
			c.record(t, r)
		} else {
			left = append(left, t)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return c.runBatch(ctx, left)
}

// newReport returns the path of the next report.
func (c *column) newReport() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports++
	return filepath.Join(c.dir, fmt.Sprintf("%04d.xml", c.reports))
}

func (c *column) record(t test, r result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.results[t.name] = r
	outcome := "FAILED"
	if r.passed {
		outcome = "passed"
	} else if r.skipped {
		outcome = "skipped"
	}
	c.logf("%s %d/%d  %-7s %6.1f s  %s", c.name, len(c.results), c.total, outcome, r.seconds, t.name)
}
