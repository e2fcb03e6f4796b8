// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/test/support/netlab"
)

// ownTable creates an nftables table that nobody else may change (NFT_TABLE_F_OWNER). The kernel deletes the table when
// release is called. The nftables library does not support the flag.
func ownTable(t *testing.T, host *netlab.Host, name string) (release func()) {
	t.Helper()
	const owner = 2
	var socket int
	message := func(kind, flags uint16, family byte, resource uint16, attributes ...byte) []byte {
		header := make([]byte, unix.SizeofNlMsghdr, 64)
		binary.NativeEndian.PutUint32(header, uint32(unix.SizeofNlMsghdr+4+len(attributes)))
		binary.NativeEndian.PutUint16(header[4:], kind)
		binary.NativeEndian.PutUint16(header[6:], flags)
		header = append(header, family, unix.NFNETLINK_V0)
		return append(binary.BigEndian.AppendUint16(header, resource), attributes...)
	}
	attribute := func(kind uint16, value ...byte) []byte {
		encoded := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
		encoded = append(binary.NativeEndian.AppendUint16(encoded, kind), value...)
		return append(encoded, make([]byte, -len(value)&3)...)
	}
	require.NoError(t, host.Do(func() (err error) {
		if socket, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER); err != nil {
			return err
		}
		table := append(attribute(unix.NFTA_TABLE_NAME, append([]byte(name), 0)...), attribute(unix.NFTA_TABLE_FLAGS, 0, 0, 0, owner)...)
		batch := slices.Concat(
			message(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES),
			message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, unix.NLM_F_REQUEST|unix.NLM_F_CREATE, unix.AF_INET, 0, table...),
			message(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
		return unix.Sendto(socket, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}))
	return func() { require.NoError(t, unix.Close(socket)) }
}

// tunnelCheck is longer than the interval at which a gateway repairs its tunnel.
const tunnelCheck = 6 * time.Second

// observe waits for an event that matches, and ignores refusals. It fails if an event is forbidden.
func (p *process) observe(limit time.Duration, matches, isForbidden func(event) bool) (found bool) {
	p.t.Helper()
	timeout := time.After(limit)
	for {
		select {
		case e, ok := <-p.events:
			require.True(p.t, ok, "%s of %s ended", p.role, p.host)
			require.False(p.t, isForbidden(e), "%+v", e)
			if matches(e) {
				return true
			}
		case <-timeout:
			return false
		}
	}
}

// TestRulesThatCannotBeWritten checks that a gateway does not connect while the kernel refuses its rules, that it says
// so, and that it connects as soon as the kernel accepts them.
func TestRulesThatCannotBeWritten(t *testing.T) {
	netlab.Need(t)
	rome, milan := newCluster(t, "rome"), newCluster(t, "milan")
	netlab.Cable(rome.gatewayNode, "internet", internetRome+"/24", milan.gatewayNode, "internet", internetMil+"/24")
	forwardPort(t, milan.gatewayNode, tunnelPort, gatewayIP)
	describePeerings(rome, milan)
	milan.start(t)
	for i, host := range []*netlab.Host{rome.node, rome.gatewayNode} {
		start(t, host, "agent").apply(rome.hosts[i])
	}
	release := ownTable(t, rome.gate, desired.TableName)
	gateway := start(t, rome.gate, "gateway")
	require.NoError(t, json.NewEncoder(gateway.input).Encode(rome.peering))
	isConnected := func(e event) bool { return e.Connected != nil && *e.Connected }
	isRefused := func(e event) bool { return strings.Contains(e.Refused, "the gateway does not connect") }
	require.True(t, gateway.observe(20*time.Second, isRefused, isConnected))
	isUsed := func(e event) bool { return isConnected(e) || e.TunnelWrites > 0 }
	require.False(t, gateway.observe(tunnelCheck, isUsed, isUsed), "the gateway has used the tunnel without rules")
	release()
	require.True(t, gateway.observe(20*time.Second, isConnected, func(event) bool { return false }))
	listen(t, milan.pod)
	_, source := dial(t, rome.pod, "10.61.1.10:8080")
	require.Equal(t, "10.71.1.10", source)
}
