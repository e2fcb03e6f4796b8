// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/refract-project/refract/test/support/testenv/internal/process"
)

//go:embed init.sh
var initScript []byte

// enterScript is a shell script that runs a command in the cgroups and in all namespaces of a machine. Its arguments
// are DIR PID COMMAND...
const enterScript = `while read -r group; do echo $$ >"$group/cgroup.procs"; done <"$0/cgroups"
pid=$1; shift
exec nsenter -t "$pid" --mount --cgroup --uts --ipc --net --pid -- "$@"`

// startTimeout limits the start of a machine. It is many times the usual duration.
const startTimeout = 2 * time.Minute

// Machine is a machine of a Network. Its methods are safe for concurrent use.
type Machine struct {
	name, address, port string
	dir                 string
	network             *Network
	first               *process.Process
}

// Add adds a machine. name must be a DNS label. The address of the machine ends in host, which must be a number from
// 2 to 254 that no other machine uses.
func (n *Network) Add(name string, host int) (*Machine, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fmt.Errorf("adding the machine %s, the network is closed", name)
	}
	address := fmt.Sprintf("%s%d", prefix, host)
	if host <= ownHost || host > lastHost {
		return nil, fmt.Errorf("adding the machine %s, no machine can have the address %s", name, address)
	}
	for _, m := range n.machines {
		if m.address == address {
			return nil, fmt.Errorf("adding the machine %s, %s has the address %s", name, m.name, address)
		}
	}
	m := &Machine{
		name: name, network: n, address: address, port: fmt.Sprintf("port%d", host),
		dir: filepath.Join(n.dir, fmt.Sprintf("%d", host)),
	}
	n.machines = append(n.machines, m)
	if err := m.start(); err != nil {
		return nil, fmt.Errorf("starting the machine %s, %w", name, err)
	}
	return m, nil
}

func (m *Machine) start() error {
	if err := os.MkdirAll(filepath.Join(m.dir, "log"), 0o700); err != nil {
		return err
	}
	script := filepath.Join(m.dir, "init.sh")
	if err := os.WriteFile(script, initScript, 0o600); err != nil {
		return err
	}
	cmd := exec.Command("bash", script, m.dir, m.name)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWPID,
	}
	var err error
	if m.first, err = process.Start(m.network.launcher, m.dir, "init", cmd); err != nil {
		return err
	}
	if err := m.await(); err != nil {
		return err
	}
	groups, err := m.cgroups()
	if err != nil {
		return err
	}
	for _, group := range groups {
		if err := m.network.launcher.RemoveCgroup(group); err != nil {
			return err
		}
	}
	return m.connect()
}

func (m *Machine) await() error {
	deadline := time.Now().Add(startTimeout)
	for {
		if _, err := os.Stat(filepath.Join(m.dir, "ready")); err == nil {
			return nil
		}
		if m.first.HasEnded() {
			return m.first.Failure()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("its first process is not ready after %s, its log ends:\n%s", startTimeout, m.first.Tail())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// connect connects the machine to the bridge.
func (m *Machine) connect() error {
	err := m.network.ip(
		fmt.Sprintf("link add %s type veth peer name wan0 netns %d", m.port, m.first.Pid()),
		fmt.Sprintf("link set %s master wan up", m.port),
	)
	if err != nil {
		return err
	}
	if err := m.ip("link set lo up", "addr add "+m.address+"/24 dev wan0", "link set wan0 up"); err != nil {
		return err
	}
	return m.Run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
}

// Name returns the host name of the machine.
func (m *Machine) Name() string { return m.name }

// Address returns the address of the machine in its network.
func (m *Machine) Address() string { return m.address }

// Command returns a command that runs in the machine. Its process is a child of the process that starts it, and
// belongs to the same process group.
func (m *Machine) Command(path string, args ...string) *exec.Cmd {
	return exec.Command("bash", append([]string{"-c", enterScript, m.dir, fmt.Sprint(m.first.Pid()), path}, args...)...)
}

// NetworkCommand returns a command that runs on this computer, but uses the network of the machine.
func (m *Machine) NetworkCommand(path string, args ...string) *exec.Cmd {
	return inNetwork(m.first.Pid(), path, args...)
}

// Run runs a command in the machine. An error contains the output of the command.
func (m *Machine) Run(path string, args ...string) error { return output(m.Command(path, args...)) }

// Route makes the machine route packets for a range of addresses to another machine.
func (m *Machine) Route(cidr string, to *Machine) error {
	return m.ip("route replace " + cidr + " via " + to.address + " dev wan0")
}

// RouteAny adds a route for a range of addresses that packet filter rules of the machine redirect. Without a route,
// packets from processes of the machine itself would not reach these rules.
func (m *Machine) RouteAny(cidr string) error { return m.ip("route replace " + cidr + " dev wan0") }

// Dial connects from the machine to an IP address and port.
func (m *Machine) Dial(ctx context.Context, address string) (net.Conn, error) {
	return dial(ctx, m.first.Pid(), "tcp4", address)
}

// Path returns the path on this computer of a file in one of the machine's own folders.
func (m *Machine) Path(inside string) string { return filepath.Join(m.dir, "fs", inside) }

func (m *Machine) ip(commands ...string) error { return ipBatch(m.first.Pid(), commands...) }

func (m *Machine) cgroups() ([]string, error) {
	content, err := os.ReadFile(filepath.Join(m.dir, "cgroups"))
	return strings.Fields(string(content)), err
}

// close ends all processes of the machine and removes its cgroups.
func (m *Machine) close() error {
	if m.first == nil {
		return nil
	}
	m.first.Kill()
	groups, err := m.cgroups()
	if err != nil {
		return err
	}
	var errs []error
	for _, group := range groups {
		errs = append(errs, removeCgroup(group))
	}
	return errors.Join(errs...)
}

// removeCgroup removes a cgroup and its children. It retries, because the last processes might not have left yet.
func removeCgroup(path string) error {
	deadline := time.Now().Add(startTimeout)
	for {
		err := removeTree(path)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func removeTree(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(path, entry.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(path)
}
