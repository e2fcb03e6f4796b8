// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPinger acts as the peer. It sends invalid datagrams, which must have no effect, then a ping, and then the answer
// of a Liqo gateway.
func TestPinger(t *testing.T) {
	peer, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)})
	require.NoError(t, err)
	defer peer.Close()
	address := peer.LocalAddr().(*net.UDPAddr).AddrPort()
	changes, latencies := make(chan bool, 10), make(chan time.Duration, 10)
	key := func(n byte) []byte { return bytes.Repeat([]byte{n}, keyLength) }
	announced, confirmed := make(chan [][]byte, 10), make(chan [][]byte, 10)
	ended, reconnects, superseded := make(chan error, 1), make(chan struct{}, 100), make(chan int64, 10)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		ended <- Run(ctx, Options{ClusterID: "rome", RemoteClusterID: "milan", Peer: address, Reconnect: func() { reconnects <- struct{}{} },
			Changed:  func(connected bool, _ time.Duration) { changes <- connected },
			Answered: func(latency time.Duration) { latencies <- latency },
			Keys: &KeyExchange{
				Own: func() [][]byte { return [][]byte{key(1), key(2)} }, OfPeer: func() [][]byte { return [][]byte{key(3)} },
				Announced: func(keys [][]byte) { announced <- keys }, Accepted: func(keys [][]byte) { confirmed <- keys },
			},
			Terms: &Terms{Own: func() int64 { return 5 }, Superseded: func(term int64) { superseded <- term }}})
	}()
	buffer := make([]byte, 2*maxMessage)
	receive := func() (map[string]any, netip.AddrPort) {
		require.NoError(t, peer.SetReadDeadline(time.Now().Add(time.Minute)))
		n, from, err := peer.ReadFromUDPAddrPort(buffer)
		require.NoError(t, err)
		fields := map[string]any{}
		require.NoError(t, json.Unmarshal(buffer[:n], &fields))
		return fields, from
	}
	send := func(to netip.AddrPort, text string) {
		_, err := peer.WriteToUDPAddrPort([]byte(text), to)
		require.NoError(t, err)
	}
	fields, pinger := receive()
	require.Equal(t, "PING", fields["msgType"])
	require.Equal(t, "milan", fields["clusterID"])
	require.Equal(t, true, fields["refract"])
	require.NotContains(t, fields, "keys", "the peer may run Liqo")
	require.NotContains(t, fields, "term")
	_, err = time.Parse(time.RFC3339Nano, fields["timeStamp"].(string))
	require.NoError(t, err)

	// None of these messages may be answered. The pinger sends its own pings in between.
	for _, bad := range []string{
		"", "{", "null", `{"clusterID":"rome","msgType":"OTHER"}`, `{"clusterID":"naples","msgType":"PING","timeStamp":"bad"}`,
		`{"clusterID":"rome","msgType":"PING","timeStamp":"bad","more":"` + strings.Repeat("x", 2000) + `"}`,
		`{"clusterID":"milan","msgType":"PONG","timeStamp":"2020-01-01T00:00:00Z"}`,
		`{"clusterID":"rome","msgType":"PING","timeStamp":"bad","keys":["YQ=="]}`,
		`{"clusterID":"rome","msgType":"PING","timeStamp":"bad","keys":"a"}`,
		`{"clusterID":"rome","msgType":"PING","timeStamp":"bad","keys":[` + strings.Repeat(encoded(key(1))+",", MaxKeys) +
			encoded(key(1)) + `]}`,
		`{"clusterID":"naples","msgType":"PONG","timeStamp":"` + fields["timeStamp"].(string) + `"}`,
	} {
		send(pinger, bad)
	}
	send(pinger, `{"clusterID":"rome","msgType":"PING","timeStamp":"2020-01-01T00:00:00.1Z"}`)
	for {
		if fields, _ = receive(); fields["msgType"] == "PONG" {
			break
		}
	}
	require.Equal(t, map[string]any{"clusterID": "rome", "msgType": "PONG", "timeStamp": "2020-01-01T00:00:00.1Z"}, fields)
	require.Empty(t, changes)

	// A gateway of Liqo sends only the fields that it knows.
	for fields["msgType"] != "PING" {
		fields, _ = receive()
	}
	send(pinger, `{"clusterID":"milan","msgType":"PONG","timeStamp":"`+fields["timeStamp"].(string)+`"}`)
	require.True(t, <-changes)
	require.Positive(t, <-latencies)
	require.Empty(t, announced)
	require.Empty(t, confirmed)
	// A gateway of Refract repeats its last answer when another of its pods has become active.
	stamp := func() string { return fields["timeStamp"].(string) }
	for fields, _ = receive(); fields["msgType"] != "PING"; {
		fields, _ = receive()
	}
	for len(reconnects) > 0 {
		<-reconnects
	}
	send(pinger, `{"clusterID":"milan","msgType":"PONG","refract":true,"timeStamp":"`+stamp()+`"}`)
	<-latencies
	// Gateways of Refract exchange keys.
	for fields, _ = receive(); fields["keys"] == nil; {
		fields, _ = receive()
	}
	require.Equal(t, []any{base64.StdEncoding.EncodeToString(key(1)), base64.StdEncoding.EncodeToString(key(2))}, fields["keys"])
	send(pinger, `{"clusterID":"milan","msgType":"PONG","refract":true,"timeStamp":"`+stamp()+`","keys":[`+encoded(key(1))+`]}`)
	require.Equal(t, [][]byte{key(1)}, <-confirmed)
	send(pinger, `{"clusterID":"rome","msgType":"PING","refract":true,"timeStamp":"2020-01-01T00:00:00.15Z","keys":[`+encoded(key(4))+`]}`)
	require.Equal(t, [][]byte{key(4)}, <-announced)
	for fields, _ = receive(); fields["msgType"] != "PONG"; {
		fields, _ = receive()
	}
	require.Equal(t, []any{base64.StdEncoding.EncodeToString(key(3))}, fields["keys"], "the answer contains the accepted keys")
	require.NotContains(t, fields, "term")
	// Answers contain the latest term that a gateway has used.
	for _, term := range []string{"8", "7"} {
		send(pinger, `{"clusterID":"rome","msgType":"PING","refract":true,"timeStamp":"2020-01-01T00:00:00.16Z","term":`+term+`}`)
		for fields, _ = receive(); fields["msgType"] != "PONG"; {
			fields, _ = receive()
		}
		require.Equal(t, 8.0, fields["term"])
	}
	for _, term := range []string{"5", "6"} {
		for fields, _ = receive(); fields["msgType"] != "PING"; {
			fields, _ = receive()
		}
		require.Equal(t, 5.0, fields["term"])
		send(pinger, `{"clusterID":"milan","msgType":"PONG","refract":true,"timeStamp":"`+stamp()+`","term":`+term+`}`)
	}
	require.Equal(t, int64(6), <-superseded)
	last := stamp()
	send(pinger, `{"clusterID":"milan","msgType":"PONG","refract":true,"moved":true,"timeStamp":"`+last+`"}`)
	<-reconnects

	// The gateway of this test must do the same for a client of Refract.
	last = "2020-01-01T00:00:00.2Z"
	send(pinger, `{"clusterID":"rome","msgType":"PING","refract":true,"timeStamp":"`+last+`"}`)
	for stamp() != last {
		fields, _ = receive()
	}
	require.NotContains(t, fields, "moved")
	cancel(ErrMoved)
	require.NoError(t, <-ended)
	for fields["moved"] == nil {
		fields, _ = receive()
	}
	require.Equal(t, map[string]any{"clusterID": "rome", "msgType": "PONG", "timeStamp": last, "refract": true, "moved": true}, fields)
}

// encoded returns a key as a JSON string.
func encoded(key []byte) string { return `"` + base64.StdEncoding.EncodeToString(key) + `"` }
