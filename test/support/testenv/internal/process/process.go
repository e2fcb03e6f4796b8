// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// tailLines is the number of lines of a component's log that errors quote. It is sufficient for a fatal message and
// its cause.
const tailLines = 8

// Process is a running component of a cluster. Its methods are safe for concurrent use.
type Process struct {
	// Name is the name of the component. Log is the path of the file with the output of all its runs.
	Name, Log string
	// Ended is closed when the process has ended and has been reaped.
	Ended chan struct{}

	cmd *exec.Cmd
}

// Start runs a command in the folder dir. Its output is written to a log file in the folder, to which later runs
// append.
func Start(l *Launcher, dir, name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Name: name, Log: filepath.Join(dir, "log", name+".log"), Ended: make(chan struct{}), cmd: cmd}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s, %w", name, err)
	}
	defer func() { _ = log.Close() }()
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	if err := l.start(p.cmd); err != nil {
		return nil, fmt.Errorf("starting %s, %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the result of the process is in the log and in ProcessState
		close(p.Ended)
	}()
	return p, nil
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Terminate sends SIGTERM to the process.
func (p *Process) Terminate() error { return p.cmd.Process.Signal(syscall.SIGTERM) }

// Succeeded reports whether the process has ended with exit code 0.
func (p *Process) Succeeded() bool { return p.cmd.ProcessState.Success() }

// Kill kills the process and its children, and returns when they are gone. No data is lost: all state is in etcd's
// folder, which is either removed or, if only the API server is restarted, still used by a running etcd.
func (p *Process) Kill() {
	if !p.HasEnded() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	<-p.Ended
}

// HasEnded reports whether the process has ended.
func (p *Process) HasEnded() bool {
	select {
	case <-p.Ended:
		return true
	default:
		return false
	}
}

// Failure returns an error that describes an unexpected exit, with the end of the log.
func (p *Process) Failure() error {
	return fmt.Errorf("%s ended (%s), its log ends:\n%s", p.Name, p.cmd.ProcessState, p.Tail())
}

// Tail returns the end of the log.
func (p *Process) Tail() string {
	content, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(bytes.TrimSpace(content)), "\n")
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	return "\t" + strings.Join(lines, "\n\t")
}
