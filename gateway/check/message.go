// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

const (
	// maxMessage is the maximum length of a datagram, as in Liqo. Only probes of the path MTU are longer.
	maxMessage = 1024
	// maxProbe is the maximum length of a probe.
	maxProbe = 1<<16 - 1 - datagramHeaders
	// datagramHeaders is the length of the IPv4 and UDP headers.
	datagramHeaders = 28
)

// MaxKeys is the maximum number of keys of a gateway: its key, and the one that it replaces or that will replace it.
const MaxKeys = 2

// keyLength is the length of a key of WireGuard in bytes.
const keyLength = 32

const (
	ping = "PING"
	pong = "PONG"
)

// message is a datagram in Liqo's format.
type message struct {
	// ClusterID is the ID of the cluster that must answer the ping. The answer contains the same ID.
	ClusterID string `json:"clusterID"`
	MsgType   string `json:"msgType"`
	// TimeStamp is the sender's time in RFC 3339 format. Only the sender reads it.
	TimeStamp string `json:"timeStamp"`
	// Refract is true in the messages of Refract. Liqo's answers do not contain it.
	Refract bool `json:"refract,omitempty"`
	// Moved is true in the last answer of a pod, when another pod of the gateway has become active. Liqo ignores it.
	Moved bool `json:"moved,omitempty"`
	// MTU is the size of the packet in a probe of the path MTU, with the headers, and in its answer. Only gateways of Refract get
	// such messages. Versions that do not know the field drop it, so that their answers do not count.
	MTU int `json:"mtu,omitempty"`
	// Keys contains public keys. A ping has the keys of its sender. The answer has the keys that the answering gateway accepts from
	// that sender. Versions that do not know the field drop it, so that their answers confirm nothing.
	Keys [][]byte `json:"keys,omitempty"`
	// Term is the term of the pod that sends a ping. The answer has the latest term that the answering gateway knows of the pods of that
	// gateway. Versions that do not know the field drop it.
	Term int64 `json:"term,omitempty"`
}

// parseMessage parses a datagram. It returns an error for messages that no gateway sends.
func parseMessage(data []byte) (m message, err error) {
	if len(data) > maxMessage && data[len(data)-1] != padding {
		return m, fmt.Errorf("the datagram is longer than %d bytes", maxMessage)
	}
	if err := json.Unmarshal(bytes.TrimRight(data, string(padding)), &m); err != nil {
		return m, errors.New("the datagram is not JSON")
	}
	if isProbe := m.MsgType == ping && m.MTU != 0; isProbe && len(data)+datagramHeaders != m.MTU || !isProbe && len(data) > maxMessage {
		return m, errors.New("the datagram is not of its size")
	}
	if m.MsgType != ping && m.MsgType != pong {
		return m, errors.New("the datagram is neither a ping nor an answer")
	}
	if len(m.Keys) > MaxKeys || slices.ContainsFunc(m.Keys, func(key []byte) bool { return len(key) != keyLength }) {
		return m, fmt.Errorf("the datagram does not have at most %d keys of %d bytes", MaxKeys, keyLength)
	}
	return m, nil
}

// padding is appended to a probe of the path MTU. It may follow any JSON.
const padding = ' '

// encodeProbe returns a ping as a datagram whose packet has the size m.MTU.
func (m message) encodeProbe() []byte {
	data := m.encode()
	return append(data, bytes.Repeat([]byte{padding}, max(0, m.MTU-datagramHeaders-len(data)))...)
}

// encode returns the message as a datagram.
func (m message) encode() []byte {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // encoding strings, numbers and bools cannot fail
	}
	return data
}
