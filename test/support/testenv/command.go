// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/refract-project/refract/test/support/testenv/internal/process"
)

// Command is a program of the caller that ends together with a cluster. Its methods are safe for concurrent use.
type Command struct{ process *process.Process }

// StartCommand starts a program with the given arguments. Like the components of the cluster, it ends with the
// cluster, and also if this process is killed. The name can be used again after the program has ended. The output is
// then appended to the same log.
func (c *Cluster) StartCommand(name, path string, args ...string) (*Command, error) {
	if err := c.run(name, path, args); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &Command{process: c.processes[name]}, nil
}

// Pid returns the process ID, for measurements.
func (c *Command) Pid() int { return c.process.Pid() }

// LogPath returns the path of the log with the output of all programs that were started with this name.
func (c *Command) LogPath() string { return c.process.Log }

// Failure returns nil while the program is running. After its end, Failure returns an error with the end of its log.
func (c *Command) Failure() error {
	if !c.process.HasEnded() {
		return nil
	}
	return c.process.Failure()
}

// Kill kills the program, as in a crash.
func (c *Command) Kill() { c.process.Kill() }

// Interrupt sends SIGTERM to the program and waits until it ends. If ctx ends first, Interrupt kills the program and
// returns an error. If the program fails, it also returns an error.
func (c *Command) Interrupt(ctx context.Context) error {
	if c.process.HasEnded() {
		return nil
	}
	begun := time.Now()
	if err := c.process.Terminate(); err != nil {
		return fmt.Errorf("asking %s to end, %w", c.process.Name, err)
	}
	select {
	case <-c.process.Ended:
	case <-ctx.Done():
		c.process.Kill()
		return fmt.Errorf("%s did not end within %.0f s of SIGTERM and was killed, its log ends:\n%s", c.process.Name, time.Since(begun).Seconds(), c.process.Tail())
	}
	if !c.process.Succeeded() {
		return fmt.Errorf("after SIGTERM %w", c.process.Failure())
	}
	return nil
}

// Usage is the current resource usage of a process.
type Usage struct {
	// CPU is the user and system CPU time.
	CPU time.Duration
	// RSS is the resident memory in bytes. PeakRSS is the highest RSS so far.
	RSS, PeakRSS int64
}

// ProcessUsage reads the resource usage of a running process from /proc (see proc(5)).
func ProcessUsage(pid int) (Usage, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	return parseUsage(status, stat)
}
