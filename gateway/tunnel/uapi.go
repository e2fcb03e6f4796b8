// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// formatConfig returns a configuration in the text format of userspace implementations
// (https://www.wireguard.com/xplatform/). The text contains the private key and must not be logged.
func formatConfig(c *wgtypes.Config) string {
	var b strings.Builder
	line := func(key string, value any) { fmt.Fprintf(&b, "%s=%v\n", key, value) }
	if c.PrivateKey != nil {
		line("private_key", hex.EncodeToString(c.PrivateKey[:]))
	}
	if c.ListenPort != nil {
		line("listen_port", *c.ListenPort)
	}
	for _, p := range c.Peers {
		line("public_key", hex.EncodeToString(p.PublicKey[:]))
		if p.Remove {
			line("remove", true)
		}
		if p.UpdateOnly {
			line("update_only", true)
		}
		if p.Endpoint != nil {
			line("endpoint", p.Endpoint)
		}
		if p.PersistentKeepaliveInterval != nil {
			line("persistent_keepalive_interval", int(p.PersistentKeepaliveInterval.Seconds()))
		}
		if p.ReplaceAllowedIPs {
			line("replace_allowed_ips", true)
		}
		for _, n := range p.AllowedIPs {
			line("allowed_ip", &n)
		}
	}
	return b.String()
}

// parseDevice parses the state of a device in the same format. Unknown keys are ignored.
func parseDevice(text string) (*wgtypes.Device, error) {
	device := &wgtypes.Device{Type: wgtypes.Userspace}
	var peer *wgtypes.Peer
	for row := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(row, "\n"), "=")
		if key == "public_key" {
			device.Peers = append(device.Peers, wgtypes.Peer{})
			peer = &device.Peers[len(device.Peers)-1]
		}
		if err := parseLine(device, peer, key, value); err != nil {
			return nil, fmt.Errorf("reading %s of the WireGuard device, %w", key, err)
		}
	}
	return device, nil
}

func parseLine(device *wgtypes.Device, peer *wgtypes.Peer, key, value string) (err error) {
	switch key {
	case "private_key":
		device.PrivateKey, err = parseKey(value)
		device.PublicKey = device.PrivateKey.PublicKey()
		return err
	case "listen_port":
		device.ListenPort, err = strconv.Atoi(value)
		return err
	}
	if peer == nil {
		return nil
	}
	switch key {
	case "public_key":
		peer.PublicKey, err = parseKey(value)
	case "endpoint":
		var endpoint netip.AddrPort
		endpoint, err = netip.ParseAddrPort(value)
		peer.Endpoint = net.UDPAddrFromAddrPort(endpoint)
	case "allowed_ip":
		var network *net.IPNet
		if _, network, err = net.ParseCIDR(value); err == nil {
			peer.AllowedIPs = append(peer.AllowedIPs, *network)
		}
	case "last_handshake_time_sec":
		var seconds int64
		if seconds, err = strconv.ParseInt(value, 10, 64); seconds != 0 {
			peer.LastHandshakeTime = time.Unix(seconds, 0)
		}
	case "last_handshake_time_nsec":
		var nanoseconds int64
		nanoseconds, err = strconv.ParseInt(value, 10, 64)
		peer.LastHandshakeTime = peer.LastHandshakeTime.Add(time.Duration(nanoseconds))
	case "rx_bytes":
		peer.ReceiveBytes, err = strconv.ParseInt(value, 10, 64)
	case "tx_bytes":
		peer.TransmitBytes, err = strconv.ParseInt(value, 10, 64)
	}
	return err
}

func parseKey(value string) (wgtypes.Key, error) {
	key, err := hex.DecodeString(value)
	if err != nil {
		return wgtypes.Key{}, fmt.Errorf("the key is not hexadecimal")
	}
	return wgtypes.NewKey(key)
}
