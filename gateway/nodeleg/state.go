// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodeleg

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// requestInterval is how often a node sends a request to each gateway. A shorter one finds a loss sooner, and costs packets for each pair
	// of a node and a gateway.
	requestInterval = time.Second
	// silenceTimeout is how long nothing may arrive from an end that was reached before. With less, a few lost packets or the restart of an agent
	// are reported.
	silenceTimeout = 5 * time.Second
	// newNodeGrace is how long a gateway waits for the first request of a node. A new node first has to start its agent. With a longer one, a
	// node that never had a connection is reported later.
	newNodeGrace = 30 * time.Second
	// maxCheckDelay is how late a check may be. After a longer pause, this process itself has missed packets, and does not count the time.
	maxCheckDelay = 3 * time.Second
)

// End is a node, as a gateway sees it, or a gateway, as a node sees it.
type End struct {
	Name    string
	Address netip.Addr
}

// contact is the state of one end.
type contact struct {
	name string
	// since is when the end became known, and reached when packets last passed, zero if they never did.
	since, reached time.Time
	// token is the token of the last answer: the one that a gateway has sent, or a node has received.
	token number
	// pending is the id of the last request that a node has sent, zero after its answer.
	pending number
}

// contacts contains the state of all ends, by address. It is not safe for concurrent use.
type contacts struct {
	// grace is how long an end may be silent that was never reached.
	grace   time.Duration
	known   map[netip.Addr]*contact
	checked time.Time
}

// set replaces the known ends. The state of an end with the same name and address is kept.
func (c *contacts) set(ends []End, now time.Time) {
	known := map[netip.Addr]*contact{}
	for _, e := range ends {
		if old := c.known[e.Address]; old != nil && old.name == e.Name {
			known[e.Address] = old
			continue
		}
		known[e.Address] = &contact{name: e.Name, since: now}
	}
	c.known = known
}

// requested records a request of a node, and returns the token of the answer. It returns false for an unknown sender. The
// node is reached if it has received the last answer.
func (c *contacts) requested(from netip.Addr, token number, now time.Time) (next number, ok bool) {
	node := c.known[from]
	if node == nil {
		return next, false
	}
	if token == node.token && token != (number{}) {
		node.reached = now
	}
	node.token = newNumber()
	return node.token, true
}

// request returns the next request to a gateway.
func (c *contacts) request(to netip.Addr) packet {
	gateway := c.known[to]
	gateway.pending = newNumber()
	return packet{kind: requestKind, id: gateway.pending, token: gateway.token}
}

// answered records the answer of a gateway. It returns false if the last request to it had another id.
func (c *contacts) answered(from netip.Addr, p packet, now time.Time) bool {
	gateway := c.known[from]
	if gateway == nil || gateway.pending == (number{}) || p.id != gateway.pending {
		return false
	}
	gateway.reached, gateway.token, gateway.pending = now, p.token, number{}
	return true
}

// missing returns the sorted names of the ends that are not reached. It must be called at requestInterval.
func (c *contacts) missing(now time.Time) (names []string) {
	if !c.checked.IsZero() && now.Sub(c.checked) > maxCheckDelay {
		for _, end := range c.known {
			if !end.reached.IsZero() {
				end.reached = now
			}
		}
	}
	c.checked = now
	for _, end := range c.known {
		if end.reached.IsZero() && now.Sub(end.since) >= c.grace || !end.reached.IsZero() && now.Sub(end.reached) >= silenceTimeout {
			names = append(names, end.name)
		}
	}
	slices.Sort(names)
	return names
}
