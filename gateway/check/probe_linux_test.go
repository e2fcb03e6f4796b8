// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestProbesOfPathMTU acts as peers that receive packets of 1000 bytes at most: one of Refract, which gets probes, one of Refract that does not know
// them, and one of Liqo, which must not get any.
func TestProbesOfPathMTU(t *testing.T) {
	for name, c := range map[string]struct {
		refract, answersProbes bool
	}{
		"Refract": {true, true}, "former version": {true, false}, "Liqo": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peer, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)})
			require.NoError(t, err)
			defer peer.Close()
			results := make(chan int, 10)
			ctx := t.Context()
			go func() {
				_ = Run(ctx, Options{ClusterID: "rome", RemoteClusterID: "milan", Peer: peer.LocalAddr().(*net.UDPAddr).AddrPort(),
					Reconnect: func() {}, Changed: func(bool, time.Duration) {}, Answered: func(time.Duration) {},
					MTU: func() int { return 1340 }, PathMTU: func(size int) { results <- size }})
			}()
			buffer := make([]byte, maxProbe)
			largest := 0
			for pings := 0; len(results) == 0 && pings < 12; {
				require.NoError(t, peer.SetReadDeadline(time.Now().Add(time.Minute)))
				n, from, err := peer.ReadFromUDPAddrPort(buffer)
				require.NoError(t, err)
				var m message
				require.NoError(t, json.Unmarshal(buffer[:n], &m))
				if m.MTU == 0 {
					pings++
				} else {
					require.Equal(t, n+datagramHeaders, m.MTU)
					largest = max(largest, m.MTU)
					pings = 0
				}
				if m.MTU > 1000 {
					continue
				}
				m.MsgType, m.Refract = pong, c.refract
				if !c.answersProbes {
					m.MTU = 0
				}
				_, err = peer.WriteToUDPAddrPort(m.encode(), from)
				require.NoError(t, err)
				if !c.refract && pings == 3 {
					break // pings to Liqo are seldom
				}
			}
			switch {
			case c.answersProbes:
				require.Equal(t, 1000, <-results)
				require.Equal(t, 1340, largest)
			case c.refract:
				require.Empty(t, results, "nothing is known about the path")
			default:
				require.Zero(t, largest)
			}
		})
	}
}

// TestProbeOfThePeer checks that a probe is answered with a short message, and only if it has the size that it states.
func TestProbeOfThePeer(t *testing.T) {
	m := message{ClusterID: "rome", MsgType: ping, TimeStamp: "x", Refract: true, MTU: 8840}
	data := m.encodeProbe()
	require.Len(t, data, 8840-datagramHeaders)
	parsed, err := parseMessage(data)
	require.NoError(t, err)
	require.Equal(t, m, parsed)
	parsed.MsgType = pong
	answer := parsed.encode()
	require.Less(t, len(answer), 200)
	again, err := parseMessage(answer)
	require.NoError(t, err)
	require.Equal(t, 8840, again.MTU)
	padded := strings.Repeat(" ", 2000)
	for _, bad := range []string{
		string(data[1:]), string(data[:len(data)-1]), string(data) + " ",
		fmt.Sprintf(`{"msgType":"PING"}%s`, padded), fmt.Sprintf(`{"msgType":"PONG","mtu":2046}%s`, padded), padded,
	} {
		_, err := parseMessage([]byte(bad))
		require.Error(t, err)
	}
}
