// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package nodeleg

import "crypto/rand"

const (
	packetVersion = 1
	numberSize    = 8
	packetSize    = 2 + 2*numberSize
)

// TypeOfService is the type of service (TOS, DSCP 7) of requests and answers. It is not used otherwise, so that a route can be for them
// alone. It has only bits that all kernels compare.
const TypeOfService = 0x1c

// The kinds of packet. A request and its answer have the same length, so that an answer is never larger than what
// caused it.
const (
	requestKind = 1
	answerKind  = 2
)

// number is a random number. The zero value means that there is none.
type number [numberSize]byte

func newNumber() (n number) {
	_, _ = rand.Read(n[:]) // never fails
	return n
}

// packet is a request or an answer.
type packet struct {
	kind byte
	// id identifies the request. The answer has the id of its request.
	id number
	// token is a new number in each answer. A request has the token of the last answer that the node has received.
	token number
}

func (p packet) encode() []byte {
	data := []byte{packetVersion, p.kind}
	data = append(data, p.id[:]...)
	return append(data, p.token[:]...)
}

// decode returns the packet in a datagram. It refuses anything but a packet of the given kind.
func decode(data []byte, kind byte) (p packet, ok bool) {
	if len(data) != packetSize || data[0] != packetVersion || data[1] != kind {
		return p, false
	}
	return packet{kind, number(data[2:]), number(data[2+numberSize:])}, true
}
