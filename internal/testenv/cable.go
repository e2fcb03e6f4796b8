// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflectiontest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Cable is a connection to an API server that can be cut (connections end, new ones are closed at once) and unplugged (new
// ones are refused).
type Cable struct {
	target, address string
	listener        net.Listener
	mu              sync.Mutex
	cut             bool
	open            map[net.Conn]bool
}

// ThroughCable leads the manager's way to the provider through a cable.
func (l *Lab) ThroughCable() *Cable {
	l.Helper()
	address := Must(url.Parse(l.Options.Remote.Host))(l.T)
	c := &Cable{target: address.Host, address: "127.0.0.1:0", open: map[net.Conn]bool{}}
	c.Plug(l.T)
	c.address = c.listener.Addr().String()
	l.Cleanup(c.Unplug)
	l.Options.Remote.Host = "https://" + c.address
	return c
}

func (c *Cable) Plug(t *testing.T) {
	t.Helper()
	c.SetCut(false)
	listener := Must(net.Listen("tcp", c.address))(t)
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
