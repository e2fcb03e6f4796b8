// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReplacedKey checks that probes and answers with the previous key count for a while, and only after a replacement.
func TestReplacedKey(t *testing.T) {
	now, target := time.Now(), netip.MustParseAddr("10.1.2.5")
	first, second, third := deriveKey([]byte("1")), deriveKey([]byte("2")), deriveKey([]byte("3"))
	var k keys
	decodes := func(key []byte, after time.Duration) bool {
		p, used, ok := k.decode(target, packet{kind: probeKind, nonce: nonceOf(7)}.encode(key, target), now.Add(after))
		if ok {
			require.Equal(t, key, used)
			require.Equal(t, nonceOf(7), p.nonce)
		}
		return ok
	}
	k.replace(first, now)
	require.True(t, decodes(first, 0))
	require.False(t, decodes(second, 0))
	require.False(t, decodes(nil, 0), "there was no key before")
	require.Equal(t, first, k.next(target, now))
	require.Equal(t, first, k.next(target, now))

	k.replace(second, now)
	k.replace(second, now.Add(time.Minute))
	require.True(t, decodes(first, oldKeyPeriod-1))
	require.True(t, decodes(second, oldKeyPeriod-1))
	require.False(t, decodes(third, 0))
	require.False(t, decodes(first, oldKeyPeriod))
	require.True(t, decodes(second, oldKeyPeriod))
	for range 2 {
		require.Equal(t, first, k.next(target, now))
		require.Equal(t, second, k.next(target, now))
	}
	k.confirm(target, first)
	require.Equal(t, first, k.next(target, now))
	k.confirm(target, second)
	require.Equal(t, second, k.next(target, now))
	require.Equal(t, second, k.next(target, now))
	another := netip.MustParseAddr("10.1.2.6")
	require.Equal(t, second, k.next(another, now))
	require.Equal(t, first, k.next(another, now))
	require.Equal(t, second, k.next(netip.MustParseAddr("10.1.2.7"), now.Add(oldKeyPeriod)))

	k.replace(third, now)
	require.False(t, decodes(first, 0), "only the last key before")
	require.True(t, decodes(second, 0))
}

// TestReplacedKeyOfRunningPods replaces the key of the pods one after the other. Whichever gets it first, no pod may take over. The
// key before counts for both directions.
func TestReplacedKeyOfRunningPods(t *testing.T) {
	for name, order := range map[string][2]int{"active pod first": {0, 1}, "standby first": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			a := &apiServer{view: View{Known: true}}
			active := start(t, a, private)
			await(t, active.isActive)
			standby := start(t, a, private)
			endpoint := client
			answered := func() {
				// The standby learns a new endpoint of the peer only from an answer. It must arrive before the fifth probe is lost.
				endpoint = netip.AddrPortFrom(endpoint.Addr(), endpoint.Port()+1)
				active.SetPeer(endpoint)
				await(t, func() bool { return standby.Peer() == endpoint })
			}
			answered()
			members := []*member{active, standby}
			for _, i := range order {
				members[i].SetPrivateKey([]byte("another key"))
				for range 3 * missedProbes {
					answered()
				}
			}
			require.Zero(t, standby.won.Load())
			require.Equal(t, active.address, a.read().Holder)
			require.Equal(t, int64(1), active.won.Load())
		})
	}
}
