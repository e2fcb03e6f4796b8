// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Link connects one cluster to the API server of another. It can be cut, can stall in one or both directions, can be
// slow, and can lose connections. Its methods are safe for concurrent use.
type Link struct {
	listener net.Listener
	dial     func() (net.Conn, error)
	wg       sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	closed  bool
	cut     bool
	stalled [2]bool
	delay   time.Duration
	loss    float64
	open    map[net.Conn]bool
}

// Direction is one of the two directions of a Link.
type Direction int

// The two directions of a Link.
const (
	// There is the direction from the client to the server.
	There Direction = iota
	// Back is the direction from the server to the client.
	Back
)

// NewLink listens on a port of 127.0.0.1 and forwards connections to target until Close. target consists of host and
// port.
func NewLink(target string) (*Link, error) {
	return NewLinkTo(func() (net.Conn, error) { return net.DialTimeout("tcp4", target, DialTimeout) })
}

// DialTimeout limits how long connecting may take. All addresses are on this computer.
const DialTimeout = 10 * time.Second

// NewLinkTo listens on a port of 127.0.0.1 and forwards connections to those that dial returns, until Close.
func NewLinkTo(dial func() (net.Conn, error)) (*Link, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a link, %w", err)
	}
	l := &Link{listener: listener, dial: dial, open: map[net.Conn]bool{}}
	l.changed = sync.NewCond(&l.mu)
	l.wg.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			l.wg.Go(func() { l.carry(near) })
		}
	})
	return l, nil
}

// Address returns the host and port for clients.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Close closes all connections.
func (l *Link) Close() {
	_ = l.listener.Close()
	l.set(func() { l.closed, l.cut = true, true })
	l.wg.Wait()
}

// Cut ends all existing connections, and all new ones as soon as they are made.
func (l *Link) Cut() { l.set(func() { l.cut = true }) }

// Drop ends the existing connections. New connections are not affected.
func (l *Link) Drop() { l.set(l.drop) }

// Stall blocks all data in the given directions. Connections stay open.
func (l *Link) Stall(directions ...Direction) {
	l.set(func() {
		for _, direction := range directions {
			l.stalled[direction] = true
		}
	})
}

// Slow delays each piece of data by the given time.
func (l *Link) Slow(delay time.Duration) { l.set(func() { l.delay = delay }) }

// Lose makes each piece of data end its connection with the given probability, from 0 to 1.
func (l *Link) Lose(probability float64) { l.set(func() { l.loss = probability }) }

// Mend restores normal operation.
func (l *Link) Mend() {
	l.set(func() { l.cut, l.stalled, l.delay, l.loss = l.closed, [2]bool{}, 0, 0 })
}

func (l *Link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	if l.cut {
		l.drop()
	}
	l.changed.Broadcast()
}

func (l *Link) drop() {
	for end := range l.open {
		_ = end.Close()
	}
	clear(l.open)
}

func (l *Link) carry(near net.Conn) {
	defer func() { _ = near.Close() }()
	far, err := l.dial()
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	if !l.add(near, far) {
		return
	}
	defer l.remove(near, far)
	var ends sync.WaitGroup
	ends.Go(func() { l.copy(There, far, near) })
	l.copy(Back, near, far)
	ends.Wait()
}

func (l *Link) add(ends ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range ends {
		l.open[end] = !l.cut
	}
	return !l.cut
}

func (l *Link) remove(ends ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range ends {
		delete(l.open, end)
	}
}

// copy copies data in one direction, and ends both connections when either has ended.
func (l *Link) copy(direction Direction, to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if l.pass(direction, from) != nil {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

var errCut, errLost = errors.New("the link is cut"), errors.New("the link has lost data")

// pass waits until a piece of data may be forwarded.
func (l *Link) pass(direction Direction, from net.Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.stalled[direction] && l.open[from] {
		l.changed.Wait()
	}
	if !l.open[from] {
		return errCut
	}
	if l.loss > 0 && rand.Float64() < l.loss { //nolint:gosec // no secret
		return errLost
	}
	if delay := l.delay; delay > 0 {
		l.mu.Unlock()
		time.Sleep(delay)
		l.mu.Lock()
	}
	return nil
}
