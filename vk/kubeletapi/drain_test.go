// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gone is a connection whose peer has written its output and exited. Writes fail. Reads return the output only after a
// write has failed.
type gone struct {
	output            io.Reader
	refused, closed   chan struct{}
	onRefuse, onClose func()
}

func newGone(output io.Reader) *gone {
	g := &gone{output: output, refused: make(chan struct{}), closed: make(chan struct{})}
	g.onRefuse, g.onClose = sync.OnceFunc(func() { close(g.refused) }), sync.OnceFunc(func() { close(g.closed) })
	return g
}

func (g *gone) Write([]byte) (int, error) {
	g.onRefuse()
	return 0, syscall.EPIPE
}

func (g *gone) Read(p []byte) (int, error) {
	<-g.refused
	select {
	case <-g.closed:
		return 0, os.ErrClosed
	// A proxy that stops after the failed write closes the connection within this time.
	case <-time.After(50 * time.Millisecond):
	}
	return g.output.Read(p)
}

func (g *gone) Close() error {
	g.onClose()
	return nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestNothingIsLostOfAStreamThatHasEnded checks that all output of a command that has ended is delivered, even if the
// caller is still sending input.
func TestNothingIsLostOfAStreamThatHasEnded(t *testing.T) {
	output, provider := "the last line, and the exit code", &url.URL{Scheme: "https", Host: "milan"}
	s := New(Config{NodeName: "milan", Remote: Remote{URL: provider, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: r,
			Body: newGone(strings.NewReader(output))}, nil
	})}})
	server := httptest.NewServer(s.proxyTo(provider))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
	fmt.Fprint(conn, "more input")
	got, err := io.ReadAll(reader)
	require.NoError(t, err)
	assert.Equal(t, output, string(got))
}
