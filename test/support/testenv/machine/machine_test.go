// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/machine"
)

// patience limits operations that must succeed, and impatience limits operations that must fail.
const patience, impatience = 2 * time.Minute, 500 * time.Millisecond

// much is an amount of data that needs many TCP segments.
const much = 200 << 10

func TestMachines(t *testing.T) {
	testenv.NeedNodes(t)
	parameters := read(t, "/proc/sys/vm/overcommit_memory") + read(t, "/proc/sys/kernel/panic")
	network, err := machine.NewNetwork()
	require.NoError(t, err)
	defer func() { assert.NoError(t, network.Close()) }()
	one, err := network.Add("one", 11)
	require.NoError(t, err)
	two, err := network.Add("two", 12)
	require.NoError(t, err)
	_, err = network.Add("three", 12)
	assert.ErrorContains(t, err, "two has the address")

	out, err := one.Command("sh", "-c", "hostname; ls -d /proc/[0-9]* | wc -l; cat /proc/self/cgroup; echo 9 >/proc/sys/kernel/panic; cat /proc/sys/kernel/panic").CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := strings.Split(string(out), "\n")
	assert.Equal(t, "one", lines[0])
	assert.Less(t, len(lines[1]), 3, "it sees its own processes, not those of this computer: %s", lines[1])
	assert.Contains(t, string(out), ":/\n", "its cgroup is its root")
	assert.Equal(t, "9", lines[len(lines)-2])
	assert.Equal(t, parameters, read(t, "/proc/sys/vm/overcommit_memory")+read(t, "/proc/sys/kernel/panic"), "what it sets holds for itself")

	listener, err := network.Listen(5000)
	require.NoError(t, err)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(conn, "hello "+conn.RemoteAddr().String()+strings.Repeat(".", much))
				_ = conn.Close()
			}()
		}
	}()
	defer func() { _ = listener.Close() }()
	heard := func(m *machine.Machine, patience time.Duration) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		conn, err := m.Dial(ctx, net.JoinHostPort(network.Address(), "5000"))
		if err != nil {
			return "", err
		}
		defer func() { _ = conn.Close() }()
		text, err := io.ReadAll(conn)
		return string(text), err
	}
	for _, m := range []*machine.Machine{one, two} {
		text, err := heard(m, patience)
		require.NoError(t, err)
		assert.Contains(t, text, m.Address())
	}
	require.NoError(t, network.Cut(one))
	_, err = heard(one, impatience)
	assert.Error(t, err)
	_, err = heard(two, patience)
	assert.NoError(t, err, "the line of the other is whole")
	require.NoError(t, network.Mend(one))
	assert.Eventually(t, func() bool {
		_, err := heard(one, impatience)
		return err == nil
	}, patience, 10*time.Millisecond)

	require.NoError(t, network.Slow(one, 0, 1))
	_, err = heard(one, impatience)
	assert.Error(t, err, "all packets are lost")
	const delay = 100 * time.Millisecond
	require.NoError(t, network.Slow(one, delay, 0))
	begun := time.Now()
	text, err := heard(one, patience)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(begun), 4*delay, "the connection, and what is heard, take a round trip each")
	assert.Greater(t, len(text), much, "all of it arrives, in segments of any size")
	require.NoError(t, network.Slow(one, 0, 0.02))
	text, err = heard(one, patience)
	require.NoError(t, err)
	assert.Greater(t, len(text), much, "what is lost is sent again")
	require.NoError(t, network.Mend(one))
	_, err = heard(one, patience)
	require.NoError(t, err)
	assert.Error(t, exec.Command("ip", "route", "get", network.Address(), "oif", "wan0").Run(), "this computer has no way there")

	sleeper := two.Command("sleep", "1000")
	require.NoError(t, sleeper.Start())
	t.Cleanup(func() { _ = sleeper.Process.Kill() })
	var group string
	require.Eventually(t, func() bool {
		group = regexp.MustCompile(`refract-network-[0-9]+-12`).FindString(read(t, fmt.Sprintf("/proc/%d/cgroup", sleeper.Process.Pid)))
		return group != ""
	}, patience, 10*time.Millisecond)
	require.NoError(t, network.Close())
	assert.Error(t, sleeper.Wait(), "its processes end with the machine")
	left, err := exec.Command("find", "/sys/fs/cgroup", "-name", group).Output()
	require.NoError(t, err)
	assert.Empty(t, string(left), "its cgroups are removed")
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

// TestNetworksOfMachinesAreApart checks that two runs on one computer do not affect each other. Their machines have the
// same names and addresses, but are in separate networks.
func TestNetworksOfMachinesAreApart(t *testing.T) {
	testenv.NeedNodes(t)
	for _, greeting := range []string{"first", "second"} {
		network, err := machine.NewNetwork()
		require.NoError(t, err)
		defer func() { assert.NoError(t, network.Close()) }()
		one, err := network.Add("one", 11)
		require.NoError(t, err)
		listener, err := network.Listen(5000)
		require.NoError(t, err)
		defer func() { _ = listener.Close() }()
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, greeting)
				_ = conn.Close()
			}
		}()
		defer func() { // checks that the connection still works after the other network was created
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			conn, err := one.Dial(ctx, net.JoinHostPort(network.Address(), "5000"))
			if !assert.NoError(t, err) {
				return
			}
			defer func() { _ = conn.Close() }()
			heard, err := io.ReadAll(conn)
			assert.NoError(t, err)
			assert.Equal(t, greeting, string(heard))
		}()
	}
}
