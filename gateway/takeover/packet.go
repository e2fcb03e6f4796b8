// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

const (
	packetVersion = 1
	nonceSize     = 16
	bodySize      = 3 + nonceSize + 16 + 2
	packetSize    = bodySize + sha256.Size
)

// The kinds of packets.
const (
	probeKind  = 1
	answerKind = 2
)

// The flags of an answer.
const (
	// activeFlag is set while the pod carries the packets of the peering.
	activeFlag = 1 << iota
	// leavingFlag is set when the pod is about to end.
	leavingFlag
)

// keyLabel separates the key of probes from all other uses of the private key.
const keyLabel = "refract gateway takeover v1"

// deriveKey returns the key of probes and answers. All pods of a gateway have the same private key.
func deriveKey(private []byte) []byte {
	mac := hmac.New(sha256.New, private)
	mac.Write([]byte(keyLabel))
	return mac.Sum(nil)
}

// nonce identifies a probe. The answer contains the same nonce.
type nonce [nonceSize]byte

// packet is a probe or its answer. Both have the same length.
type packet struct {
	kind, flags byte
	nonce       nonce
	// peer is the endpoint to which the active pod sends the packets for the peer. It is invalid in probes, and while
	// there is no endpoint.
	peer netip.AddrPort
}

// encode returns the datagram. The pod that is probed has the address target.
func (p packet) encode(key []byte, target netip.Addr) []byte {
	data := make([]byte, 0, packetSize)
	data = append(data, packetVersion, p.kind, p.flags)
	data = append(data, p.nonce[:]...)
	var peer [16]byte
	if p.peer.IsValid() {
		peer = p.peer.Addr().As16()
	}
	data = append(data, peer[:]...)
	data = binary.BigEndian.AppendUint16(data, p.peer.Port())
	return append(data, authenticate(key, target, data)...)
}

// decode returns the packet of a datagram. It refuses a datagram of another gateway or another target.
func decode(key []byte, target netip.Addr, data []byte) (p packet, ok bool) {
	if len(data) != packetSize || data[0] != packetVersion {
		return p, false
	}
	if !hmac.Equal(data[bodySize:], authenticate(key, target, data[:bodySize])) {
		return p, false
	}
	p.kind, p.flags = data[1], data[2]
	copy(p.nonce[:], data[3:])
	address := netip.AddrFrom16([16]byte(data[3+nonceSize:])).Unmap()
	if port := binary.BigEndian.Uint16(data[bodySize-2:]); port != 0 {
		p.peer = netip.AddrPortFrom(address, port)
	}
	return p, true
}

// authenticate returns the MAC of a packet. The MAC covers the address of the probed pod. Otherwise a process that has
// the address of a former pod could forward probes to another pod, and return its answers.
func authenticate(key []byte, target netip.Addr, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	address := target.As16()
	mac.Write(address[:])
	return mac.Sum(nil)
}
