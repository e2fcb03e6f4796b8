// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Cable is a connection to an API server. If it is cut, existing connections end, and new ones are closed at once. If
// it is unplugged, new connections are refused.
type Cable struct {
	target, address string
	listener        net.Listener
	mu              sync.Mutex
	cut             bool
	open            map[net.Conn]bool
}

// NewCable returns a cable to the server at target, which consists of host and port. The cable is plugged in. At the
// end of the test, it is unplugged.
func NewCable(t *testing.T, target string) *Cable {
	t.Helper()
	c := &Cable{target: target, address: "127.0.0.1:0", open: map[net.Conn]bool{}}
	c.Plug(t)
	c.address = c.listener.Addr().String()
	t.Cleanup(c.Unplug)
	return c
}

// Address returns the host and port for clients.
func (c *Cable) Address() string { return c.address }

// Plug makes the cable accept new connections.
func (c *Cable) Plug(t *testing.T) {
	t.Helper()
	c.SetCut(false)
	listener, err := net.Listen("tcp", c.address)
	require.NoError(t, err)
	c.listener = listener
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go c.carry(near)
		}
	}()
}

// Unplug ends all connections and refuses new ones.
func (c *Cable) Unplug() {
	_ = c.listener.Close()
	c.SetCut(true)
}

func (c *Cable) carry(near net.Conn) {
	far, err := net.Dial("tcp", c.target)
	if err != nil || !c.add(near, far) {
		_ = near.Close()
		return
	}
	go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
	_, _ = io.Copy(near, far)
	_ = near.Close()
}

func (c *Cable) add(ends ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range ends {
		if c.cut {
			_ = end.Close()
			continue
		}
		c.open[end] = true
	}
	return !c.cut
}

// SetCut cuts the cable, or ends the cut. While the cable is cut, all existing and new connections end.
func (c *Cable) SetCut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	if cut {
		for end := range c.open {
			_ = end.Close()
		}
		clear(c.open)
	}
}
