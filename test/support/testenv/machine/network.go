// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/refract-project/refract/test/support/testenv/internal/process"
)

// ErrNotHere is returned if this computer cannot create machines. The text of the error names the missing
// requirement.
var ErrNotHere = errors.New("machines cannot be made here")

// The network uses addresses from TEST-NET-2 (RFC 5737), which are not used otherwise.
const (
	prefix = "198.51.100."
	// ownHost is the host number of the bridge. Network.Listen uses this address. lastHost is the highest host
	// number.
	ownHost, lastHost = 1, 254
	// bridgeAddress is the MAC address of the bridge. A bridge without a fixed address takes the lowest address of its
	// ports, which changes when a port is added or removed. Machines would then send packets to the former address
	// until their neighbor tables expire.
	bridgeAddress = "02:00:c6:33:64:01"
)

// Network connects machines. Its methods are safe for concurrent use.
type Network struct {
	dir      string
	launcher *process.Launcher
	holder   *process.Process // process that holds the namespace of the bridge

	mu       sync.Mutex
	machines []*Machine
	detours  map[*Machine]*detour
	closed   bool
}

// Check returns ErrNotHere if this computer lacks a requirement.
func Check() error {
	var missing []string
	if os.Getuid() != 0 {
		missing = append(missing, "root")
	}
	for _, program := range []string{"ip", "sysctl", "nft", "nsenter", "unshare", "mount", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: missing %s (make node-tools installs the programs)", ErrNotHere, strings.Join(missing, ", "))
	}
	return nil
}

// NewNetwork returns a network without machines. The caller must close it.
func NewNetwork() (_ *Network, err error) {
	if err := Check(); err != nil {
		return nil, err
	}
	n := &Network{detours: map[*Machine]*detour{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("making a network for machines, %w", err), n.Close())
		}
	}()
	// In a container, the limit's file may be read-only. The current limit may still be sufficient, so this is not an
	// error.
	if err = raiseInotifyLimit(inotifyInstances, minInotifyInstances); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
		return nil, err
	}
	if n.dir, err = os.MkdirTemp("", "refract-network-"); err != nil {
		return nil, err
	}
	if err = os.Mkdir(n.dir+"/log", 0o700); err != nil {
		return nil, err
	}
	if n.launcher, err = process.NewLauncher(n.dir); err != nil {
		return nil, err
	}
	holder := exec.Command("sleep", "infinity")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if n.holder, err = process.Start(n.launcher, n.dir, "network", holder); err != nil {
		return nil, err
	}
	return n, n.ip(
		"link set lo up",
		"link add wan address "+bridgeAddress+" type bridge",
		fmt.Sprintf("addr add %s%d/24 dev wan", prefix, ownHost),
		"link set wan up",
	)
}

// Address returns the address on which Listen listens.
func (n *Network) Address() string { return fmt.Sprintf("%s%d", prefix, ownHost) }

// Listen listens on a port of Address, which all machines can reach.
func (n *Network) Listen(port int) (listener net.Listener, err error) {
	err = within(n.holder.Pid(), func() error {
		listener, err = net.Listen("tcp4", fmt.Sprintf("%s:%d", n.Address(), port))
		return err
	})
	return listener, err
}

// Cut cuts the network connection of a machine: packets in both directions are lost, and neither side gets an error.
func (n *Network) Cut(m *Machine) error { return n.ip("link set " + m.port + " down") }

// Mend restores the network connection of a machine after Cut or Slow.
func (n *Network) Mend(m *Machine) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return errors.Join(n.straighten(m), n.ip("link set "+m.port+" up"))
}

// Slow slows the network connection of a machine. In both directions, each packet is delayed, and is lost with the
// probability loss, from 0 to 1.
func (n *Network) Slow(m *Machine, delay time.Duration, loss float64) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return fmt.Errorf("slowing the line of %s, the network is closed", m.name)
	}
	if err := n.straighten(m); err != nil {
		return err
	}
	if n.detours[m], err = n.startDetour(m, delay, loss); err != nil {
		delete(n.detours, m)
		return fmt.Errorf("slowing the line of %s, %w", m.name, err)
	}
	return nil
}

// straighten restores the network connection of a machine after Slow.
func (n *Network) straighten(m *Machine) error {
	d := n.detours[m]
	if d == nil {
		return nil
	}
	delete(n.detours, m)
	return n.endDetour(d)
}

// Close stops all machines. Further calls do nothing.
func (n *Network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	var errs []error
	for _, m := range n.machines {
		errs = append(errs, n.straighten(m))
	}
	for _, m := range n.machines {
		errs = append(errs, m.close())
	}
	if n.holder != nil {
		n.holder.Kill()
	}
	if n.launcher != nil {
		n.launcher.Close()
	}
	if n.dir != "" {
		errs = append(errs, os.RemoveAll(n.dir))
	}
	return errors.Join(errs...)
}

// ip runs commands of ip(8) in the network namespace of the bridge.
func (n *Network) ip(commands ...string) error { return ipBatch(n.holder.Pid(), commands...) }

// ipBatch runs commands of ip(8), without the word "ip", in the network namespace of a process.
func ipBatch(pid int, commands ...string) error {
	cmd := inNetwork(pid, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	return output(cmd)
}

func output(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// inNetwork returns a command that runs in the network namespace of a process, without an intermediate process.
func inNetwork(pid int, path string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", pid), "--", path}, args...)...)
}

// dial connects to an address from the network namespace of a process. The address must not contain a host name,
// because the resolver would run in another namespace.
func dial(ctx context.Context, pid int, network, address string) (conn net.Conn, err error) {
	err = within(pid, func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
