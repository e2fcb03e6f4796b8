// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/test/support/netlab"
	"github.com/refract-project/refract/test/support/testenv"
)

// line is a path between two pods.
type line struct {
	from, to *netlab.Host
	// source is the address of from, and address that of to, as from reaches it.
	source, address string
	// gateways are the ids of the processes of the gateways.
	gateways []int
	// received counts the bytes that to has received on sinkPort.
	received atomic.Int64
}

// Ports of the pod at the end of a line: one echoes, the other one only receives.
const echoTCPPort, sinkPort = "8080", "8081"

// newLine serves sinkPort until the test ends.
func newLine(t *testing.T, from, to *netlab.Host, source, address string, gateways ...int) *line {
	t.Helper()
	l := &line{from: from, to: to, source: source, address: address, gateways: gateways}
	serveTCP(t, to, sinkPort, func(connection net.Conn) {
		for buffer := make([]byte, 1<<18); ; {
			n, err := connection.Read(buffer)
			l.received.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	return l
}

// dial opens a connection on the calling thread, which must be in the namespace of the pod from.
func (l *line) dial(port string) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(l.source)}}
	connection, err := dialer.Dial("tcp4", net.JoinHostPort(l.address, port))
	if err != nil {
		return nil, err
	}
	return connection.(*net.TCPConn), nil
}

// transfer is the result of sending as much as possible.
type transfer struct {
	gbit, seconds float64
	// gateways and machine are seconds of processor time: of the processes of the gateways, and of everything on this machine.
	gateways, machine float64
}

// sendBulk sends on some connections for a period, after a quarter of it in which they reach their speed.
func (l *line) sendBulk(t *testing.T, connections int, period time.Duration) transfer {
	t.Helper()
	var senders sync.WaitGroup
	var open []net.Conn
	for range connections {
		require.NoError(t, l.from.Do(func() error {
			connection, err := l.dial(sinkPort)
			if err == nil {
				open = append(open, connection)
			}
			return err
		}))
	}
	for _, connection := range open {
		senders.Go(func() {
			for data := make([]byte, 1<<17); ; {
				if _, err := connection.Write(data); err != nil {
					return
				}
			}
		})
	}
	time.Sleep(period / 4)
	begun, received, before := time.Now(), l.received.Load(), l.processorTime(t)
	time.Sleep(period)
	seconds, bytes, after := time.Since(begun).Seconds(), l.received.Load()-received, l.processorTime(t)
	for _, connection := range open {
		_ = connection.Close()
	}
	senders.Wait()
	require.Positive(t, bytes, "nothing has arrived")
	return transfer{gbit: float64(bytes) * 8 / 1e9, seconds: seconds, gateways: after.gateways - before.gateways,
		machine: after.machine - before.machine}
}

// roundTrip returns the median duration of a request of one byte and its response, on one connection.
func (l *line) roundTrip(t *testing.T, period time.Duration) time.Duration {
	t.Helper()
	var took []time.Duration
	require.NoError(t, l.from.Do(func() error {
		connection, err := l.dial(echoTCPPort)
		if err != nil {
			return err
		}
		defer connection.Close()
		if err := readLine(connection); err != nil {
			return err
		}
		message := make([]byte, 1)
		for ended := time.Now().Add(period); time.Now().Before(ended); {
			begun := time.Now()
			if _, err := connection.Write(message); err != nil {
				return err
			}
			if _, err := io.ReadFull(connection, message); err != nil {
				return err
			}
			took = append(took, time.Since(begun))
		}
		return nil
	}))
	return median(took)
}

// connectRate returns how many connections per second are opened one after the other, each with a line from the server.
func (l *line) connectRate(t *testing.T, period time.Duration) float64 {
	t.Helper()
	begun, count := time.Now(), 0
	require.NoError(t, l.from.Do(func() error {
		for ; time.Since(begun) < period; count++ {
			connection, err := l.dial(echoTCPPort)
			if err != nil {
				return err
			}
			if err := readLine(connection); err != nil {
				return err
			}
			_ = connection.SetLinger(0) // the port can be used again at once
			_ = connection.Close()
		}
		return nil
	}))
	return float64(count) / time.Since(begun).Seconds()
}

func readLine(connection net.Conn) error {
	_, err := bufio.NewReader(connection).ReadString('\n')
	return err
}

type processorTime struct{ gateways, machine float64 }

func (l *line) processorTime(t *testing.T) (used processorTime) {
	t.Helper()
	for _, pid := range l.gateways {
		usage, err := testenv.ProcessUsage(pid)
		require.NoError(t, err)
		used.gateways += usage.CPU.Seconds()
	}
	text, err := os.ReadFile("/proc/stat")
	require.NoError(t, err)
	used.machine, err = parseBusyTime(text)
	require.NoError(t, err)
	return used
}

// parseBusyTime returns the processor time that a machine has used since its start, in seconds. It leaves out the time in which processors
// were idle, waited for disks, or were taken by other virtual machines.
func parseBusyTime(stat []byte) (seconds float64, err error) {
	first, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(first)
	if len(fields) < 8 || string(fields[0]) != "cpu" {
		return 0, fmt.Errorf("reading the processor time of the machine, /proc/stat begins with %q", first)
	}
	const ticksPerSecond = 100
	for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq
		ticks, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the processor time of the machine, %w", err)
		}
		seconds += float64(ticks) / ticksPerSecond
	}
	return seconds, nil
}

// median returns the middle one of several values, and the lower one of two in the middle.
func median[T float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}
