// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homenames

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

const (
	// maxQueries is the maximum number of queries over UDP that are answered at once. Further queries are dropped, and
	// clients repeat them.
	maxQueries = 1000
	// maxConnections is the maximum number of TCP connections. Further connections wait to be accepted.
	maxConnections = 250
	// idleTimeout limits how long a TCP connection may be idle. With a longer one, few clients could use up all
	// connections.
	idleTimeout = 5 * time.Second
)

// Serve answers queries over UDP and TCP until ctx is done. It closes both sockets.
func (r *Resolver) Serve(ctx context.Context, packets net.PacketConn, connections net.Listener) error {
	group, serving := errgroup.WithContext(ctx)
	stop := context.AfterFunc(serving, func() {
		packets.Close()
		connections.Close()
	})
	defer stop()
	group.Go(func() error { return ignoreClosed(ctx, r.servePackets(serving, packets)) })
	group.Go(func() error { return ignoreClosed(ctx, r.serveConnections(serving, connections)) })
	return group.Wait()
}

// ignoreClosed returns nil if err was caused by the end of ctx.
func ignoreClosed(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (r *Resolver) servePackets(ctx context.Context, packets net.PacketConn) error {
	slots := semaphore.NewWeighted(maxQueries)
	buffer := make([]byte, maxMessageBytes)
	for {
		n, client, err := packets.ReadFrom(buffer)
		if err != nil {
			return fmt.Errorf("receiving a query, %w", err)
		}
		if !slots.TryAcquire(1) {
			r.Metrics.count("udp", resultDropped)
			continue
		}
		query := append([]byte(nil), buffer[:n]...)
		go func() {
			defer slots.Release(1)
			if response := r.Answer(ctx, "udp", addressOf(client), query); response != nil {
				// If the response is lost, the client repeats its query.
				_, _ = packets.WriteTo(response, client)
			}
		}()
	}
}

func (r *Resolver) serveConnections(ctx context.Context, connections net.Listener) error {
	slots := semaphore.NewWeighted(maxConnections)
	for {
		if err := slots.Acquire(ctx, 1); err != nil {
			return nil
		}
		conn, err := connections.Accept()
		if err != nil {
			return fmt.Errorf("accepting a connection, %w", err)
		}
		go func() {
			defer slots.Release(1)
			defer conn.Close()
			r.serveConnection(ctx, conn)
		}()
	}
}

// serveConnection answers the queries of one connection, one after the other.
func (r *Resolver) serveConnection(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	for {
		if conn.SetDeadline(time.Now().Add(idleTimeout)) != nil {
			return
		}
		query, err := readMessage(conn)
		if err != nil {
			return
		}
		response := r.Answer(ctx, "tcp", addressOf(conn.RemoteAddr()), query)
		if response == nil || conn.SetDeadline(time.Now().Add(idleTimeout)) != nil || writeMessage(conn, response) != nil {
			return
		}
	}
}

// addressOf returns the IP address of a client, or an invalid address.
func addressOf(client net.Addr) netip.Addr {
	address, err := netip.ParseAddrPort(client.String())
	if err != nil {
		return netip.Addr{}
	}
	return address.Addr().Unmap()
}
