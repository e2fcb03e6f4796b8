// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// within calls f in the network namespace of a process. Sockets that f creates stay in this namespace.
func within(pid int, f func() error) error {
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer func() { _ = namespace.Close() }()
	result := make(chan error, 1)
	go func() {
		// The thread is never unlocked, so it ends with the goroutine, and no other goroutine runs in the namespace.
		runtime.LockOSThread()
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- os.NewSyscallError("setns", err)
			return
		}
		result <- f()
	}()
	return <-result
}
