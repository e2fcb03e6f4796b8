// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodeleg

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	nodeA = End{"a", netip.MustParseAddr("192.168.0.1")}
	nodeB = End{"b", netip.MustParseAddr("192.168.0.2")}
)

// at returns a time in seconds after the beginning.
func at(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }

// checkUntil checks every second, as Run does, and returns the last result.
func (c *contacts) checkUntil(from, to float64) (names []string) {
	for s := from; s <= to; s++ {
		names = c.missing(at(s))
	}
	return names
}

func newNodes() *contacts {
	c := &contacts{grace: newNodeGrace}
	c.set([]End{nodeA, nodeB}, begin)
	return c
}

// TestBothDirections checks that a gateway counts a node as reached only if the node has received the gateway's last answer.
func TestBothDirections(t *testing.T) {
	c := newNodes()
	for s := range 40 {
		// Node a receives no answers, so it never has a token.
		_, ok := c.requested(nodeA.Address, number{}, at(float64(s)))
		require.True(t, ok)
		c.missing(at(float64(s)))
	}
	require.Equal(t, []string{"a", "b"}, c.missing(at(40)))
	token, _ := c.requested(nodeA.Address, number{}, at(40))
	_, _ = c.requested(nodeA.Address, token, at(41))
	require.Equal(t, []string{"b"}, c.missing(at(41)))
	_, _ = c.requested(nodeA.Address, token, at(42)) // the answer at 41 was lost
	require.Equal(t, at(41), c.known[nodeA.Address].reached)
	_, ok := c.requested(netip.MustParseAddr("192.168.0.3"), number{}, at(42))
	require.False(t, ok, "not a node")
}

// TestMissing checks when nodes are reported, and when they are not any more.
func TestMissing(t *testing.T) {
	c := newNodes()
	reach := func(n End, s float64) {
		token, _ := c.requested(n.Address, number{}, at(s))
		_, _ = c.requested(n.Address, token, at(s))
	}
	require.Empty(t, c.checkUntil(0, 29), "a new node starts its agent")
	reach(nodeA, 29)
	require.Equal(t, []string{"b"}, c.checkUntil(30, 33))
	require.Equal(t, []string{"a", "b"}, c.checkUntil(34, 34))
	reach(nodeA, 35)
	require.Equal(t, []string{"b"}, c.missing(at(35)))
	c.set([]End{nodeA}, at(36))
	require.Empty(t, c.checkUntil(36, 39), "b was deleted, a keeps its state")
	require.Equal(t, []string{"a"}, c.checkUntil(40, 40))
	c.set([]End{{"c", nodeA.Address}}, at(41))
	require.Empty(t, c.checkUntil(41, 42), "another node has the address")
}

// TestOwnPause checks that a gateway that was stopped does not report all nodes.
func TestOwnPause(t *testing.T) {
	c := newNodes()
	for _, n := range []End{nodeA, nodeB} {
		token, _ := c.requested(n.Address, number{}, at(0))
		_, _ = c.requested(n.Address, token, at(0))
	}
	require.Empty(t, c.checkUntil(0, 2))
	require.Empty(t, c.missing(at(60)), "the process was stopped for a minute")
	require.Empty(t, c.checkUntil(61, 64))
	require.Equal(t, []string{"a", "b"}, c.checkUntil(65, 65))
}

// TestGateways checks the side of a node: only the answer to the last request counts, once, and the next request has its token.
func TestGateways(t *testing.T) {
	c := &contacts{grace: silenceTimeout}
	gateway := End{"GatewayClient liqo-tenant-milan/milan", netip.MustParseAddr("10.1.2.5")}
	c.set([]End{gateway}, begin)
	require.Empty(t, c.checkUntil(0, 4))
	require.Equal(t, []string{gateway.Name}, c.checkUntil(5, 5))
	old := c.request(gateway.Address)
	request := c.request(gateway.Address)
	require.Equal(t, number{}, request.token)
	require.False(t, c.answered(gateway.Address, packet{answerKind, old.id, newNumber()}, at(6)), "an earlier request")
	require.False(t, c.answered(nodeA.Address, packet{answerKind, request.id, newNumber()}, at(6)), "another sender")
	answer := packet{answerKind, request.id, newNumber()}
	require.True(t, c.answered(gateway.Address, answer, at(6)))
	require.False(t, c.answered(gateway.Address, answer, at(7)), "a replay")
	require.False(t, c.answered(gateway.Address, packet{kind: answerKind}, at(7)))
	require.Empty(t, c.missing(at(7)))
	require.Equal(t, answer.token, c.request(gateway.Address).token)
}

// TestPackets checks that only packets of the expected length, version and kind are decoded.
func TestPackets(t *testing.T) {
	p := packet{requestKind, newNumber(), newNumber()}
	data := p.encode()
	require.Len(t, data, packetSize)
	decoded, ok := decode(data, requestKind)
	require.True(t, ok)
	require.Equal(t, p, decoded)
	for _, bad := range [][]byte{nil, data[:packetSize-1], append(p.encode(), 0), append([]byte{2}, data[1:]...)} {
		_, ok := decode(bad, requestKind)
		require.False(t, ok)
	}
	_, ok = decode(data, answerKind)
	require.False(t, ok)
}
