// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"errors"
	"fmt"
)

// maxMessage is the longest datagram that is read, as in Liqo.
const maxMessage = 1024

const (
	ping = "PING"
	pong = "PONG"
)

// message is a datagram in the format of Liqo.
type message struct {
	// ClusterID is the cluster that shall answer. The answer has the same.
	ClusterID string `json:"clusterID"`
	MsgType   string `json:"msgType"`
	// TimeStamp is the time of the sender, in RFC 3339. Only the sender reads it.
	TimeStamp string `json:"timeStamp"`
	// Refract is true in messages of Refract. Liqo does not return it.
	Refract bool `json:"refract,omitempty"`
	// Moved is true in the last answer of a pod, when another pod of the gateway has become active. Liqo ignores it.
	Moved bool `json:"moved,omitempty"`
}

// parseMessage reads a datagram and refuses what no gateway sends.
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

// encode returns the datagram.
func (m message) encode() []byte {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and a bool cannot fail
	}
	return data
}
