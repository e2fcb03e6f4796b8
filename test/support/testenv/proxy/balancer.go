// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// redial is how often a balancer tries to connect to a server for a client that is waiting.
const redial = 50 * time.Millisecond

// Balancer is a load balancer in front of servers. While all servers are down, clients are connected and wait, so
// that connections are never refused. Its methods are safe for concurrent use.
type Balancer struct {
	listener net.Listener
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu      sync.Mutex
	targets []string
	next    int
}

// Balance listens on a port of 127.0.0.1 and forwards connections to targets until Close. Each target consists of
// host and port.
func Balance(targets ...string) (*Balancer, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a balancer of %s, %w", targets, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &Balancer{listener: listener, targets: targets, cancel: cancel}
	b.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			b.wg.Go(func() { b.carry(ctx, client) })
		}
	})
	return b, nil
}

// Address returns the host and port for clients.
func (b *Balancer) Address() string { return b.listener.Addr().String() }

// Direct sets the servers to which new connections are distributed in turn. Existing connections stay.
func (b *Balancer) Direct(targets ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.targets = targets
}

func (b *Balancer) target() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	return b.targets[b.next%len(b.targets)]
}

// Close closes all connections.
func (b *Balancer) Close() {
	_ = b.listener.Close()
	b.cancel()
	b.wg.Wait()
}

func (b *Balancer) carry(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := b.dial(ctx)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	over := make(chan struct{}, 2)
	for to, from := range map[net.Conn]net.Conn{client: server, server: client} {
		go func() { _, _ = io.Copy(to, from); over <- struct{}{} }()
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
}

func (b *Balancer) dial(ctx context.Context) (net.Conn, error) {
	for {
		server, err := (&net.Dialer{}).DialContext(ctx, "tcp4", b.target())
		if err == nil {
			return server, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(redial):
		}
	}
}
