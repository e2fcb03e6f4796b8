// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/gateway/nodeleg"
)

// TestLegEvents checks that there is one Event for each set of missing nodes, one when all are back, and never two warnings within a minute.
func TestLegEvents(t *testing.T) {
	var written []string
	l := newLegReporter(func(kind, reason, text string) { written = append(written, kind+" "+reason+" "+text) })
	begin := time.Now()
	next := func(seconds int, missing ...string) time.Duration {
		return l.update(nodeleg.Reached{Total: 5, Missing: missing}, begin.Add(time.Duration(seconds)*time.Second))
	}
	next(0)
	require.Empty(t, written)
	next(1, "a", "b")
	require.Len(t, written, 1)
	require.Contains(t, written[0], "Warning NodesUnreachable 2 of 5 nodes do not reach this gateway, so their pods do not reach the peer: a, b. Allow UDP port 6092")
	next(2, "b")
	next(3, "a", "b")
	require.Len(t, written, 1, "a was reported already")
	require.Equal(t, 57*time.Second, next(4, "a", "b", "c"))
	require.Len(t, written, 1)
	require.Zero(t, next(61, "a", "b", "c"))
	require.Len(t, written, 2)
	next(62)
	require.Equal(t, "Normal NodesReachable all nodes reach this gateway again (5)", written[2])
	next(63)
	require.Len(t, written, 3)
	next(130, "a")
	require.Len(t, written, 4)
	l.update(nodeleg.Reached{}, begin.Add(131*time.Second))
	require.Len(t, written, 4, "another pod has become active")

	l.update(nodeleg.Reached{Total: 2, Missing: []string{"a", "b"}}, begin.Add(200*time.Second))
	require.Contains(t, written[4], "a, b. Until a node reaches this gateway, its Connection is not connected. Allow UDP")

	var many []string
	for i := range 12 {
		many = append(many, fmt.Sprint("n", i))
	}
	require.Equal(t, "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 and 2 more", formatNames(many))
}
