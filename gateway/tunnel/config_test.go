// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

var (
	ownKey, peerKey, oldKey = wgtypes.Key{1}, wgtypes.Key{2}, wgtypes.Key{3}
	now                     = time.Unix(10_000, 0)
	configured              = netip.MustParseAddrPort("203.0.113.2:51840")
	roamed                  = &net.UDPAddr{IP: net.IPv4(198, 51, 100, 9), Port: 999}
)

func network(text string) net.IPNet {
	_, n, _ := net.ParseCIDR(text)
	return *n
}

func client() Config {
	return Config{PrivateKey: ownKey, Peers: []Peer{{PublicKey: peerKey, Endpoint: configured,
		AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("169.254.18.1/32")}}}}
}

// running is a device that has the configuration of the client.
func running() *wgtypes.Device {
	return &wgtypes.Device{PrivateKey: ownKey, ListenPort: 40000, Peers: []wgtypes.Peer{{PublicKey: peerKey,
		Endpoint:   net.UDPAddrFromAddrPort(configured),
		AllowedIPs: []net.IPNet{network("169.254.18.1/32"), network("10.1.0.0/16")}, LastHandshakeTime: now.Add(-time.Second)}}}
}

func TestDiff(t *testing.T) {
	port, keepalive := 51840, keepaliveInterval
	for name, c := range map[string]struct {
		change   func(*wgtypes.Device, *Config)
		previous netip.AddrPort
		want     *wgtypes.Config
	}{
		"nothing": {func(*wgtypes.Device, *Config) {}, configured, nil},
		"new device": {func(d *wgtypes.Device, _ *Config) { *d = wgtypes.Device{} }, netip.AddrPort{}, &wgtypes.Config{PrivateKey: &ownKey,
			Peers: []wgtypes.PeerConfig{{PublicKey: peerKey, Endpoint: net.UDPAddrFromAddrPort(configured), ReplaceAllowedIPs: true,
				AllowedIPs:                  []net.IPNet{network("10.1.0.0/16"), network("169.254.18.1/32")},
				PersistentKeepaliveInterval: &keepalive}}}},
		"new peer that starts the connection": {func(d *wgtypes.Device, c *Config) { d.Peers, c.Peers[0].Endpoint = nil, netip.AddrPort{} },
			netip.AddrPort{}, &wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: peerKey, ReplaceAllowedIPs: true,
				AllowedIPs: []net.IPNet{network("10.1.0.0/16"), network("169.254.18.1/32")}}}}},
		"port": {func(_ *wgtypes.Device, c *Config) { c.ListenPort = port }, configured, &wgtypes.Config{ListenPort: &port}},
		"range": {func(_ *wgtypes.Device, c *Config) { c.Peers[0].AllowedIPs = c.Peers[0].AllowedIPs[:1] }, configured,
			&wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: peerKey, UpdateOnly: true, ReplaceAllowedIPs: true,
				AllowedIPs: []net.IPNet{network("10.1.0.0/16")}}}}},
		"old peer": {func(d *wgtypes.Device, _ *Config) { d.Peers = append(d.Peers, wgtypes.Peer{PublicKey: oldKey}) }, configured,
			&wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: oldKey, Remove: true}}}},
		"roamed, in a session":    {func(d *wgtypes.Device, _ *Config) { d.Peers[0].Endpoint = roamed }, configured, nil},
		"roamed, after a restart": {func(d *wgtypes.Device, _ *Config) { d.Peers[0].Endpoint = roamed }, netip.AddrPort{}, nil},
		"server follows its peer": {func(d *wgtypes.Device, c *Config) {
			d.Peers[0].Endpoint, c.Peers[0].Endpoint = roamed, netip.AddrPort{}
		}, netip.AddrPort{}, nil},
		"roamed, session is over": {func(d *wgtypes.Device, _ *Config) {
			d.Peers[0].Endpoint, d.Peers[0].LastHandshakeTime = roamed, now.Add(-181*time.Second)
		}, configured, endpoint(configured)},
		"roamed, then reconfigured": {func(d *wgtypes.Device, c *Config) {
			d.Peers[0].Endpoint, c.Peers[0].Endpoint = roamed, netip.MustParseAddrPort("203.0.113.3:1")
		}, configured, endpoint(netip.MustParseAddrPort("203.0.113.3:1"))},
		"no endpoint yet": {func(d *wgtypes.Device, _ *Config) { d.Peers[0].Endpoint = nil }, configured, endpoint(configured)},
	} {
		t.Run(name, func(t *testing.T) {
			device, config := running(), client()
			c.change(device, &config)
			require.Equal(t, c.want, diff(device, config, map[wgtypes.Key]netip.AddrPort{peerKey: c.previous}, now))
		})
	}
}

// TestReplacedKeys applies the configuration of a peer that replaces its key. The allowed IPs follow the latest handshake.
func TestReplacedKeys(t *testing.T) {
	nextKey := wgtypes.Key{4}
	config, device := client(), running()
	config.Peers[0].OtherKeys = []wgtypes.Key{nextKey}
	ranges := device.Peers[0].AllowedIPs
	keepalive := keepaliveInterval
	changes := func() *wgtypes.Config {
		return diff(device, config.singleKeys(device), map[wgtypes.Key]netip.AddrPort{peerKey: configured, nextKey: configured}, now)
	}
	require.Equal(t, &wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: nextKey, Endpoint: net.UDPAddrFromAddrPort(configured),
		ReplaceAllowedIPs: true, PersistentKeepaliveInterval: &keepalive}}}, changes(), "the next key is accepted, but has no ranges")
	device.Peers = append(device.Peers, wgtypes.Peer{PublicKey: nextKey, Endpoint: net.UDPAddrFromAddrPort(configured)})
	require.Nil(t, changes())

	device.Peers[1].LastHandshakeTime = now
	moved := changes()
	require.Len(t, moved.Peers, 2)
	require.Equal(t, nextKey, moved.Peers[0].PublicKey, "WireGuard takes the ranges from the other peer in this step")
	require.True(t, sameNetworks(ranges, moved.Peers[0].AllowedIPs))
	require.Equal(t, wgtypes.PeerConfig{PublicKey: peerKey, UpdateOnly: true, ReplaceAllowedIPs: true}, moved.Peers[1])
	device.Peers[0].AllowedIPs, device.Peers[1].AllowedIPs = nil, ranges
	require.Nil(t, changes())

	// A pod that has not seen the change yet takes over.
	device.Peers[0].LastHandshakeTime = now.Add(time.Millisecond)
	require.Equal(t, peerKey, changes().Peers[0].PublicKey)
	// The replaced key is withdrawn.
	config.Peers[0].PublicKey, config.Peers[0].OtherKeys = nextKey, nil
	require.Equal(t, &wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: peerKey, Remove: true}}}, changes())
}

func endpoint(e netip.AddrPort) *wgtypes.Config {
	return &wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: peerKey, UpdateOnly: true, Endpoint: net.UDPAddrFromAddrPort(e)}}}
}

// TestUAPI formats a configuration as text, and parses the state of a device from text.
func TestUAPI(t *testing.T) {
	const zeros = "00000000000000000000000000000000000000000000000000000000000000"
	config := client()
	text := formatConfig(diff(&wgtypes.Device{Peers: []wgtypes.Peer{{PublicKey: oldKey}}}, config, nil, now))
	require.Equal(t, "private_key=01"+zeros+"\npublic_key=03"+zeros+"\nremove=true\npublic_key=02"+zeros+"\nendpoint=203.0.113.2:51840\n"+
		"persistent_keepalive_interval=25\nreplace_allowed_ips=true\nallowed_ip=10.1.0.0/16\nallowed_ip=169.254.18.1/32\n", text)
	device, err := parseDevice(text + "listen_port=40000\nlast_handshake_time_sec=9999\nlast_handshake_time_nsec=5\n" +
		"rx_bytes=7\ntx_bytes=8\nprotocol_version=1\n")
	require.NoError(t, err)
	require.Len(t, device.Peers, 2)
	device.Peers = device.Peers[1:]
	require.Equal(t, time.Unix(9999, 5), device.Peers[0].LastHandshakeTime)
	require.EqualValues(t, 7, device.Peers[0].ReceiveBytes)
	require.EqualValues(t, 8, device.Peers[0].TransmitBytes)
	require.Nil(t, diff(device, config, nil, now))
	for _, bad := range []string{"public_key=xy", "listen_port=x", "public_key=" + zeros, "public_key=02" + zeros + "\nendpoint=here"} {
		_, err := parseDevice(bad)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "xy", "a key is not part of an error")
	}
}
