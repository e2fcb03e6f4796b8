// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// sessionLifetime is the time after which WireGuard no longer accepts the keys of a handshake (REJECT_AFTER_TIME).
// After this time without a handshake, the configured endpoint is used again instead of the endpoint to which the peer
// has moved.
const sessionLifetime = 180 * time.Second

// keepaliveInterval is the interval that WireGuard recommends. Pings are more frequent.
const keepaliveInterval = 25 * time.Second

// Config is the desired configuration of a device.
type Config struct {
	PrivateKey wgtypes.Key
	// ListenPort is the UDP port. If it is 0, the port is not configured.
	ListenPort int
	Peers      []Peer
}

// Peer is the gateway at the other end of the tunnel.
type Peer struct {
	PublicKey wgtypes.Key
	// OtherKeys are further keys that the peer may use while it replaces its key. The device has a WireGuard peer for each key.
	// The one with the latest handshake gets the allowed IPs, because a gateway uses one key at a time.
	OtherKeys []wgtypes.Key
	// Endpoint is the configured endpoint. It is invalid if the peer initiates the connection. If the peer moves to
	// another endpoint, the device uses that endpoint as long as the session lasts.
	Endpoint netip.AddrPort
	// AllowedIPs are the permitted source addresses of packets from the peer, and the destinations of the packets that
	// are sent to it.
	AllowedIPs []netip.Prefix
}

// singleKeys returns the configuration with a peer for each key. Of the keys of one peer, the key with the latest handshake comes first
// and has the allowed IPs. WireGuard takes them from the peer of another key in the same step.
func (c Config) singleKeys(present *wgtypes.Device) Config {
	var peers []Peer
	for _, p := range c.Peers {
		keys := append([]wgtypes.Key{p.PublicKey}, p.OtherKeys...)
		latest := 0
		for i, key := range keys {
			if lastHandshake(present, key).After(lastHandshake(present, keys[latest])) {
				latest = i
			}
		}
		keys[0], keys[latest] = keys[latest], keys[0]
		for i, key := range keys {
			single := Peer{PublicKey: key, Endpoint: p.Endpoint}
			if i == 0 {
				single.AllowedIPs = p.AllowedIPs
			}
			peers = append(peers, single)
		}
	}
	c.Peers = peers
	return c
}

// lastHandshake returns the time of the last handshake with a key. It is zero if there was none.
func lastHandshake(present *wgtypes.Device, key wgtypes.Key) time.Time {
	i := slices.IndexFunc(present.Peers, func(p wgtypes.Peer) bool { return p.PublicKey == key })
	if i < 0 {
		return time.Time{}
	}
	return present.Peers[i].LastHandshakeTime
}

// diff returns the changes that turn a device into the desired one, or nil if there are none. Each desired peer
// has a single key. previous contains the endpoints of the last configuration. A desired endpoint that differs from the
// previous one is applied immediately. Otherwise the device may continue to use another endpoint to which the peer has moved.
func diff(present *wgtypes.Device, desired Config, previous map[wgtypes.Key]netip.AddrPort, now time.Time) *wgtypes.Config {
	changes := &wgtypes.Config{}
	changed := false
	if present.PrivateKey != desired.PrivateKey {
		changes.PrivateKey, changed = &desired.PrivateKey, true
	}
	if desired.ListenPort != 0 && present.ListenPort != desired.ListenPort {
		changes.ListenPort, changed = &desired.ListenPort, true
	}
	for _, p := range present.Peers {
		if !slices.ContainsFunc(desired.Peers, func(d Peer) bool { return d.PublicKey == p.PublicKey }) {
			changes.Peers = append(changes.Peers, wgtypes.PeerConfig{PublicKey: p.PublicKey, Remove: true})
		}
	}
	for _, d := range desired.Peers {
		i := slices.IndexFunc(present.Peers, func(p wgtypes.Peer) bool { return p.PublicKey == d.PublicKey })
		if i < 0 {
			changes.Peers = append(changes.Peers, d.added())
		} else if c, ok := diffPeer(present.Peers[i], d, previous[d.PublicKey], now); ok {
			changes.Peers = append(changes.Peers, c)
		}
	}
	if !changed && len(changes.Peers) == 0 {
		return nil
	}
	return changes
}

func diffPeer(present wgtypes.Peer, desired Peer, previous netip.AddrPort, now time.Time) (c wgtypes.PeerConfig, changed bool) {
	c = wgtypes.PeerConfig{PublicKey: desired.PublicKey, UpdateOnly: true}
	if !sameNetworks(present.AllowedIPs, desired.networks()) {
		c.ReplaceAllowedIPs, c.AllowedIPs, changed = true, desired.networks(), true
	}
	if !desired.Endpoint.IsValid() || addrPort(present.Endpoint) == desired.Endpoint {
		return c, changed
	}
	moved := previous.IsValid() && previous != desired.Endpoint
	if moved || present.Endpoint == nil || now.Sub(present.LastHandshakeTime) > sessionLifetime {
		c.Endpoint, changed = desired.endpoint(), true
	}
	return c, changed
}

// added returns the configuration of a peer that the device does not have. With a keepalive, WireGuard starts the handshake at once, and not
// with the next packet.
func (p Peer) added() wgtypes.PeerConfig {
	c := wgtypes.PeerConfig{PublicKey: p.PublicKey, Endpoint: p.endpoint(), ReplaceAllowedIPs: true, AllowedIPs: p.networks()}
	if p.Endpoint.IsValid() {
		interval := keepaliveInterval
		c.PersistentKeepaliveInterval = &interval
	}
	return c
}

func (p Peer) endpoint() *net.UDPAddr {
	if !p.Endpoint.IsValid() {
		return nil
	}
	return net.UDPAddrFromAddrPort(p.Endpoint)
}

func (p Peer) networks() (networks []net.IPNet) {
	for _, a := range p.AllowedIPs {
		networks = append(networks, net.IPNet{IP: a.Masked().Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())})
	}
	return networks
}

func sameNetworks(a, b []net.IPNet) bool {
	texts := func(networks []net.IPNet) (texts [][]byte) {
		for _, n := range networks {
			texts = append(texts, []byte(n.String()))
		}
		slices.SortFunc(texts, bytes.Compare)
		return texts
	}
	return slices.EqualFunc(texts(a), texts(b), bytes.Equal)
}

func addrPort(a *net.UDPAddr) netip.AddrPort {
	if a == nil {
		return netip.AddrPort{}
	}
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}
