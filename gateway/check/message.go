// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"errors"
	"fmt"
)

// maxMessage is the maximum length of a datagram, as in Liqo.
const maxMessage = 1024

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
}

// parseMessage parses a datagram. It returns an error for messages that no gateway sends.
func parseMessage(data []byte) (m message, err error) {
	if len(data) > maxMessage {
		return m, fmt.Errorf("the datagram is longer than %d bytes", maxMessage)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, errors.New("the datagram is not JSON")
	}
	if m.MsgType != ping && m.MsgType != pong {
		return m, errors.New("the datagram is neither a ping nor an answer")
	}
	return m, nil
}

// encode returns the message as a datagram.
func (m message) encode() []byte {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // encoding strings and a bool cannot fail
	}
	return data
}
