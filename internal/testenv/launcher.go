// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
)

// watchdogScript waits for the end of its input, which is when our process is gone however it died, then kills the process
// groups it was given and removes the state folder ($1).
const watchdogScript = `groups=
while read -r line; do
	case $line in
	done) exit 0 ;;
	*) groups="$groups -$line" ;;
	esac
done
[ -z "$groups" ] || kill -s KILL -- $groups 2>/dev/null
rm -rf "$1"`

// launcher starts processes that do not outlive this one. Two nets hold them: the kernel kills each when its parent thread
// ends (Pdeathsig; hence all are started from one thread, kept for as long as the launcher is open: the runtime ends other
// threads at will), and a watchdog outside kills their process groups, so that what they started goes too.
// Safe for concurrent use.
type launcher struct {
	requests chan launchRequest
	watchdog *exec.Cmd
	// registry is written to by the locked thread alone until close.
	registry io.WriteCloser
}

type launchRequest struct {
	cmd    *exec.Cmd
	result chan error
}

func newLauncher(dir string) (*launcher, error) {
	l := &launcher{
		requests: make(chan launchRequest),
		watchdog: exec.Command("/bin/sh", "-c", watchdogScript, "refract-watchdog", dir),
	}
	// A session of its own: a signal to our terminal's or process group does not reach it.
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

// serve never unlocks its thread, which therefore ends with it: by then all processes have been stopped.
func (l *launcher) serve() {
	runtime.LockOSThread()
	for r := range l.requests {
		r.result <- l.launch(r.cmd)
	}
}

func (l *launcher) launch(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(l.registry, cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("registering %s with the watchdog, %w", cmd.Path, err)
	}
	return nil
}

// start starts the command in a process group of its own.
func (l *launcher) start(cmd *exec.Cmd) error {
	r := launchRequest{cmd: cmd, result: make(chan error, 1)}
	l.requests <- r
	return <-r.result
}

// close ends the thread and the watchdog, which leaves the state folder alone then. All processes must have been stopped,
// and start must not be called any more.
func (l *launcher) close() {
	close(l.requests)
	_, _ = fmt.Fprintln(l.registry, "done")
	_ = l.registry.Close()
	_ = l.watchdog.Wait()
}
