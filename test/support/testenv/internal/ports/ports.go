// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package ports reserves ports of 127.0.0.1 for the servers of test clusters.
package ports

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Reservation reserves a port of 127.0.0.1. Its socket is bound but does not listen, and other processes of the same
// user can share the port if they set SO_REUSEPORT. As long as the socket is open, the kernel assigns the port to no
// other process, even while the server that uses the port is down.
type Reservation struct {
	Port int
	fd   int
}

// Reserve reserves a port until Release.
func Reserve() (*Reservation, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	r := &Reservation{fd: fd}
	if err := r.bind(); err != nil {
		r.Release()
		return nil, fmt.Errorf("reserving a port of 127.0.0.1, %w", err)
	}
	return r, nil
}

func (r *Reservation) bind() error {
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(r.fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	name, err := unix.Getsockname(r.fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	r.Port = name.(*unix.SockaddrInet4).Port
	return nil
}

// Release makes the port available to other processes.
func (r *Reservation) Release() { _ = unix.Close(r.fd) }

// Free returns a port that was free a moment ago, for a server that cannot share a reserved port. If another
// process takes the port first, the caller must retry with another one.
func Free() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port, %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
