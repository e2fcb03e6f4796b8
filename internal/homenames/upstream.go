// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homenames

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// upstreamTimeout limits one query to the DNS of this cluster. Two of them fit into the 5 seconds that clients wait by
	// default.
	upstreamTimeout = 2 * time.Second
	// upstreamAttempts is the number of times a query is sent. A packet may be lost, or its DNS server may be restarting.
	upstreamAttempts = 2
	// maxMessageBytes is the maximum size of a DNS message.
	maxMessageBytes = 65535
	// maxPacketBytes is the maximum size of a response over UDP. Clients accept 4096 bytes at most by default. With a
	// larger number, many concurrent queries need more memory.
	maxPacketBytes = 16 << 10
)

// Upstream queries the DNS servers of this cluster.
type Upstream struct {
	// Addresses are the addresses of the servers, with ports. They are tried in turn.
	Addresses []string
}

// Exchange sends a query and returns the response. The response has the ID of the query.
func (u Upstream) Exchange(ctx context.Context, transport string, query []byte) ([]byte, error) {
	var problems []error
	for attempt := range upstreamAttempts {
		address := u.Addresses[attempt%len(u.Addresses)]
		response, err := exchangeOnce(ctx, transport, address, query)
		if err == nil {
			return response, nil
		}
		problems = append(problems, fmt.Errorf("querying %s, %w", address, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(problems...)
}

// exchangeOnce sends the query from a new socket, whose port is random, and with a random ID. Both prevent other pods
// from answering in place of the server.
func exchangeOnce(ctx context.Context, transport, address string, query []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, transport, address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	sent := append([]byte(nil), query...)
	if _, err := rand.Read(sent[:2]); err != nil {
		return nil, err
	}
	if transport == "tcp" {
		err = writeMessage(conn, sent)
	} else {
		_, err = conn.Write(sent)
	}
	if err != nil {
		return nil, err
	}
	for {
		response, err := readResponse(conn, transport)
		if err != nil {
			return nil, err
		}
		if len(response) >= headerBytes && response[0] == sent[0] && response[1] == sent[1] {
			copy(response, query[:2])
			return response, nil
		}
	}
}

func readResponse(conn net.Conn, transport string) ([]byte, error) {
	if transport == "tcp" {
		return readMessage(conn)
	}
	buffer := make([]byte, maxPacketBytes)
	n, err := conn.Read(buffer)
	if n == len(buffer) {
		return nil, fmt.Errorf("the response has %d bytes or more", n)
	}
	return buffer[:n], err
}

// readMessage reads one DNS message from a TCP connection.
func readMessage(conn io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(conn, message)
	return message, err
}

// writeMessage writes one DNS message to a TCP connection.
func writeMessage(conn io.Writer, message []byte) error {
	if len(message) > maxMessageBytes {
		return fmt.Errorf("a message of %d bytes is larger than a DNS message may be", len(message))
	}
	_, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...))
	return err
}
