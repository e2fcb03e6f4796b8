// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/refract-project/refract/internal/redirect"
	"github.com/refract-project/refract/internal/retryafter"
	"github.com/refract-project/refract/internal/rewind"
)

const (
	// dialTimeout limits how long connecting may take. A shorter timeout fails over slow links.
	dialTimeout = 10 * time.Second
	// keepAliveInterval is the interval of TCP keep-alives, which detect a link that drops packets. A longer interval
	// detects it later.
	keepAliveInterval = 30 * time.Second
)

// Connection is the connection to an API server. It is safe for concurrent use.
type Connection struct {
	config  *rest.Config
	api     swappable
	streams swappable
	limits  Limits
	peer    atomic.Pointer[Peer]
}

// New returns a connection for config. It sends no requests. The limits apply to each response. For a watch, they apply
// to everything that is received before the client lists again. They do not apply to responses through Streams.
func New(config *rest.Config, limits Limits) (*Connection, error) {
	c := &Connection{limits: limits}
	api, streams, err := c.newEndpoints(config)
	if err != nil {
		return nil, err
	}
	c.api.base, c.streams.base = api.server, streams.server
	c.api.swapEndpoint(api)
	c.streams.swapEndpoint(streams)
	c.config = &rest.Config{
		Host:      c.URL().String(),
		Transport: &c.api,
		UserAgent: config.UserAgent,
		QPS:       config.QPS, Burst: config.Burst, Timeout: config.Timeout,
	}
	return c, nil
}

// Parse parses the current context of a kubeconfig that another party has written. RequireEmbedded describes the
// permitted content. Clients of the returned configuration do not follow redirects to another server.
func Parse(kubeconfig []byte) (*rest.Config, error) {
	if len(kubeconfig) == 0 {
		return nil, errors.New("the kubeconfig is empty")
	}
	if err := looksLikeKubeconfig(kubeconfig); err != nil {
		return nil, err
	}
	loaded, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, readableError(err)
	}
	if err := RequireEmbedded(loaded, ""); err != nil {
		return nil, err
	}
	config, err := clientcmd.NewDefaultClientConfig(*loaded, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, readableError(err)
	}
	redirect.Refuse(config)
	return config, nil
}

// ParseFile parses the current context of a local kubeconfig, which may refer to files and commands.
func ParseFile(path string) (*rest.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig, %w", err)
	}
	if err := looksLikeKubeconfig(text); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, readableError(err)
	}
	if _, err := newEndpoint(rest.CopyConfig(config)); err != nil {
		return nil, err
	}
	return config, nil
}

// looksLikeKubeconfig returns a readable error if the text is not a kubeconfig. The library's error would contain Go
// types.
func looksLikeKubeconfig(text []byte) error {
	const remedy = "use the output of `kubectl config view --raw --flatten`"
	var root any
	if err := yaml.Unmarshal(text, &root); err != nil {
		return fmt.Errorf("not a kubeconfig (%w): %s", err, remedy)
	}
	object, isMap := root.(map[string]any)
	kind, hasKind := object["kind"]
	switch {
	case root != nil && !isMap:
		return fmt.Errorf("not a kubeconfig but a list or plain text: %s", remedy)
	case hasKind && kind != "Config":
		return fmt.Errorf("not a kubeconfig, its kind is %v: %s", kind, remedy)
	}
	return nil
}

// readableError replaces the library's error for an empty kubeconfig with a readable one. The library treats an empty
// kubeconfig like a missing one.
func readableError(err error) error {
	if clientcmd.IsEmptyConfig(err) {
		return errors.New("the kubeconfig has no cluster for its current context: check current-context, contexts and clusters")
	}
	return fmt.Errorf("reading the kubeconfig, %w", err)
}

// Config returns a configuration for clients. It contains no credentials, because the transport adds them.
func (c *Connection) Config() *rest.Config { return rest.CopyConfig(c.config) }

// URL returns the server in the first kubeconfig. Requests must use this URL, and the transports replace it with the
// current address.
func (c *Connection) URL() *url.URL { return c.api.base }

// Streams returns the transport for upgraded connections and pings. It uses HTTP/1.1, so that a timeout of one request
// does not affect others.
func (c *Connection) Streams() http.RoundTripper { return &c.streams }

// Update replaces the address and the credentials. Running requests are not affected. If the configuration cannot be
// used, nothing is changed.
func (c *Connection) Update(config *rest.Config) error {
	api, streams, err := c.newEndpoints(config)
	if err != nil {
		return err
	}
	c.api.swapEndpoint(api)
	c.streams.swapEndpoint(streams)
	return nil
}

// endpoint is an API server, accessed with one set of credentials.
type endpoint struct {
	server    *url.URL
	transport http.RoundTripper
	guard     *guard
}

// newEndpoints returns the endpoints for requests and for streams.
func (c *Connection) newEndpoints(config *rest.Config) (api, streams *endpoint, err error) {
	config = rest.CopyConfig(config)
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAliveInterval}).DialContext
	}
	if api, err = newEndpoint(config); err != nil {
		return nil, nil, err
	}
	api.transport = retryafter.Transport(rewind.Transport(bounded{next: api.transport, limits: c.limits}))
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	if streams, err = newEndpoint(config); err != nil {
		return nil, nil, err
	}
	for _, e := range []*endpoint{api, streams} {
		e.guard = &guard{expected: c.peer.Load, server: e.server, next: e.transport}
	}
	return api, streams, nil
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

// swappable is a transport that sends each request through the current endpoint.
type swappable struct {
	base    *url.URL // URL of the first endpoint, which the requests of all clients use
	current atomic.Pointer[endpoint]
}

// RoundTrip implements http.RoundTripper. Requests must use the URL of the first endpoint. A request to any other
// server was caused by a redirect, and fails.
func (s *swappable) RoundTrip(request *http.Request) (*http.Response, error) {
	e := s.current.Load()
	if err := redirect.Check(s.base, request.URL); err != nil {
		// The current server has redirected the client to another path on itself.
		if redirect.Check(e.server, request.URL) == nil {
			return e.guard.RoundTrip(request)
		}
		if request.Body != nil {
			_ = request.Body.Close() // a RoundTripper must close the body, even if it sends nothing
		}
		return nil, err
	}
	if *e.server != *s.base {
		moved := request.Clone(request.Context())
		moved.URL.Scheme, moved.URL.Host, moved.Host = e.server.Scheme, e.server.Host, e.server.Host
		moved.URL.Path = e.server.Path + strings.TrimPrefix(request.URL.Path, s.base.Path)
		if request.URL.RawPath != "" {
			moved.URL.RawPath = e.server.EscapedPath() + strings.TrimPrefix(request.URL.RawPath, s.base.EscapedPath())
		}
		request = moved
	}
	return e.guard.RoundTrip(request)
}

func (s *swappable) swapEndpoint(e *endpoint) {
	old := s.current.Swap(e)
	if old != nil {
		utilnet.CloseIdleConnectionsFor(old.transport)
	}
}
