// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// tailLines of a component's log are quoted in errors: enough for a fatal message and what led to it.
const tailLines = 8

// process is a running component of a cluster.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	// ended is closed when the process has ended and was waited for.
	ended chan struct{}
	// kept processes are started again when they end.
	kept bool
}

// startProcess runs a binary in dir with its output in a log file there, which later runs append to.
func startProcess(l *launcher, dir, name, path string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, "log", name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s, %w", name, err)
	}
	defer func() { _ = log.Close() }()
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	if err := l.start(p.cmd); err != nil {
		return nil, fmt.Errorf("starting %s, %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its log and in ProcessState
		close(p.ended)
	}()
	return p, nil
}

// kill ends the process and what it started, and returns when it is gone. There is nothing to lose: all state is in etcd's
// folder, which is removed or, on a restart of the API server alone, in the hands of an etcd that runs on.
func (p *process) kill() {
	if !p.hasEnded() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	<-p.ended
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// failure describes an end that nobody asked for, with the end of the log.
func (p *process) failure() error {
	return fmt.Errorf("%s ended (%s), its log ends:\n%s", p.name, p.cmd.ProcessState, p.tail())
}

func (p *process) tail() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(bytes.TrimSpace(content)), "\n")
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	return "\t" + strings.Join(lines, "\n\t")
}
