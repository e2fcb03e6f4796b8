// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
)

// Connection to one API server. All methods are safe for concurrent use.
type Connection struct {
	config  *rest.Config
	api     swappable
	streams swappable
}

// New makes no requests.
func New(config *rest.Config) (*Connection, error) {
	c := &Connection{}
	if err := c.Update(config); err != nil {
		return nil, err
	}
	c.config = &rest.Config{
		Host:      c.URL().String(),
		Transport: &c.api,
		UserAgent: config.UserAgent,
		QPS:       config.QPS, Burst: config.Burst, Timeout: config.Timeout,
	}
	return c, nil
}

// Parse reads a kubeconfig; its current context counts.
func Parse(kubeconfig []byte) (*rest.Config, error) {
	if len(kubeconfig) == 0 {
		return nil, errors.New("the kubeconfig is empty")
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig, %w", err)
	}
	return config, nil
}

// Config for clients. It holds no credentials: the transport adds them.
func (c *Connection) Config() *rest.Config { return rest.CopyConfig(c.config) }

// URL of the API server, at the time of the call.
func (c *Connection) URL() *url.URL { return c.api.current.Load().server }

// Streams is the transport for upgraded connections and for pings: HTTP/1.1, and
// a request that timed out takes no other one with it.
func (c *Connection) Streams() http.RoundTripper { return &c.streams }

// Update replaces address and credentials. Requests under way end as they
// began. An unusable configuration changes nothing.
func (c *Connection) Update(config *rest.Config) error {
	api := rest.CopyConfig(config)
	if api.Dial == nil {
		api.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	}
	streams := rest.CopyConfig(api)
	streams.NextProtos = []string{"http/1.1"}

	first, err := newEndpoint(api)
	if err != nil {
		return err
	}
	second, err := newEndpoint(streams)
	if err != nil {
		return err
	}
	if old := c.api.current.Load(); old != nil && old.server.Path != first.server.Path {
		return fmt.Errorf("the path of the API server changed from %q to %q: restart to follow it", old.server.Path, first.server.Path)
	}
	c.api.swap(first)
	c.streams.swap(second)
	return nil
}

// endpoint is an API server with one set of credentials.
type endpoint struct {
	server    *url.URL
	transport http.RoundTripper
}

func newEndpoint(config *rest.Config) (*endpoint, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the server address %q of the kubeconfig, %w", config.Host, err)
	}
	if server.Hostname() == "" {
		return nil, fmt.Errorf("the server address %q of the kubeconfig has no host", config.Host)
	}
	server.Path = strings.TrimSuffix(server.Path, "/")
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("using the credentials of the kubeconfig for %s, %w", server, err)
	}
	return &endpoint{server: server, transport: transport}, nil
}

// swappable sends every request through the endpoint of the moment.
type swappable struct {
	current atomic.Pointer[endpoint]
}

// RoundTrip implements http.RoundTripper. Requests are addressed to the server
// of the time when their client was made.
func (s *swappable) RoundTrip(request *http.Request) (*http.Response, error) {
	e := s.current.Load()
	if request.URL.Host != e.server.Host || request.URL.Scheme != e.server.Scheme {
		moved := request.Clone(request.Context())
		moved.URL.Scheme, moved.URL.Host, moved.Host = e.server.Scheme, e.server.Host, e.server.Host
		request = moved
	}
	return e.transport.RoundTrip(request)
}

func (s *swappable) swap(e *endpoint) {
	if old := s.current.Swap(e); old != nil {
		utilnet.CloseIdleConnectionsFor(old.transport)
	}
}
