// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package process starts the programs of test clusters, and ensures that they do not outlive the test.
package process

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
)

// watchdogScript is the shell script of the watchdog. It waits for the end of its input, which is closed when our
// process has ended for any reason. Then it kills the process groups and removes the cgroups that were written to its
// input, and removes the state folder ($1). After the line "done", it ends without doing so.
const watchdogScript = `groups= cgroups=
while read -r kind value; do
	case $kind in
	done) exit 0 ;;
	group) groups="$groups -$value" ;;
	cgroup) cgroups="$cgroups $value" ;;
	esac
done
[ -z "$groups" ] || kill -s KILL -- $groups 2>/dev/null
for cgroup in $cgroups; do # its processes end in their own time
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		find "$cgroup" -depth -type d -exec rmdir {} \; 2>/dev/null
		[ -d "$cgroup" ] || break
		sleep 0.2
	done
done
rm -rf "$1"`

// Launcher starts processes that do not outlive this process. There are two mechanisms. First, the kernel kills each
// process when its parent thread ends (Pdeathsig). Therefore all processes are started from one thread, which is kept
// while the launcher is open, because the runtime may end other threads at any time. Second, a watchdog process kills
// their process groups, so that their children end, too. A Launcher is safe for concurrent use.
type Launcher struct {
	requests chan request
	watchdog *exec.Cmd
	// registry is the input of the watchdog. Until Close, only the locked thread writes to it.
	registry io.WriteCloser
}

// request is a request to the thread: either a command to start or a cgroup to record.
type request struct {
	cmd    *exec.Cmd
	cgroup string
	result chan error
}

// NewLauncher returns a launcher for a state folder, which the watchdog removes if this process is killed.
func NewLauncher(dir string) (*Launcher, error) {
	l := &Launcher{
		requests: make(chan request),
		watchdog: exec.Command("/bin/sh", "-c", watchdogScript, "refract-watchdog", dir),
	}
	// The watchdog has its own session, so that a signal to our terminal or process group does not reach it.
	l.watchdog.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	l.watchdog.Dir = "/"
	var err error
	if l.registry, err = l.watchdog.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting the watchdog, %w", err)
	}
	if err := l.watchdog.Start(); err != nil {
		return nil, fmt.Errorf("starting the watchdog, %w", err)
	}
	go l.serve()
	return l, nil
}

// serve starts processes on its thread. The thread is never unlocked, so it ends together with serve. By then, all
// processes have been stopped.
func (l *Launcher) serve() {
	runtime.LockOSThread()
	for r := range l.requests {
		if r.cmd == nil {
			_, err := fmt.Fprintln(l.registry, "cgroup", r.cgroup)
			r.result <- err
			continue
		}
		r.result <- l.launch(r.cmd)
	}
}

func (l *Launcher) launch(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(l.registry, "group", cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("registering %s with the watchdog, %w", cmd.Path, err)
	}
	return nil
}

// start starts the command in a new process group.
func (l *Launcher) start(cmd *exec.Cmd) error { return l.ask(request{cmd: cmd}) }

// RemoveCgroup records a cgroup. If this process is killed, the watchdog removes the cgroup.
func (l *Launcher) RemoveCgroup(path string) error { return l.ask(request{cgroup: path}) }

func (l *Launcher) ask(r request) error {
	r.result = make(chan error, 1)
	l.requests <- r
	return <-r.result
}

// Close ends the thread and the watchdog without removing the state folder. All processes must have been stopped, and
// no further process may be started.
func (l *Launcher) Close() {
	close(l.requests)
	_, _ = fmt.Fprintln(l.registry, "done")
	_ = l.registry.Close()
	_ = l.watchdog.Wait()
}
