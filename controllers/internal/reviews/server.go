// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reviews

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const (
	// An API server sends all reviews over a single HTTP/2 connection. The flow control window of the connection is as
	// large as the windows of all its streams together. Otherwise reviews that wait, and whose bodies are not read yet,
	// would use up the window of the connection.
	maxStreams      = 250
	streamBytes     = 64 << 10
	connectionBytes = maxStreams * streamBytes

	// headerTimeout limits how long a client may take to send its request. API servers give up a review after at most
	// 30 seconds.
	headerTimeout = 32 * time.Second
	// idleTimeout is longer than an API server under load pauses between two reviews. A shorter timeout causes
	// additional TLS handshakes.
	idleTimeout = 90 * time.Second
	// shutdownTimeout limits the wait for reviews at the end of the process. API servers give up Refract's reviews after
	// 5 seconds. A longer wait delays the release of the leader's Lease.
	shutdownTimeout = 6 * time.Second
)

// Server is a webhook server whose flow control windows are large enough for waiting reviews. It is needed because
// controller-runtime's server does not let its users set the windows. Registration and metrics are the same as in
// controller-runtime.
type Server struct {
	webhook.Server
	address         string
	tls             *tls.Config
	started         atomic.Bool
	shutdownTimeout time.Duration
}

// NewServer returns a server that listens on the address. config must contain the certificate.
func NewServer(address string, config *tls.Config) *Server {
	return &Server{Server: webhook.NewServer(webhook.Options{WebhookMux: http.NewServeMux()}), address: address, tls: config, shutdownTimeout: shutdownTimeout}
}

// Start serves until ctx is done. It then completes the reviews in progress, but waits no longer than API servers do.
func (s *Server) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("serving webhooks, %w", err)
	}
	log.FromContext(ctx).Info("Serving webhooks", "address", s.address)
	server := newHTTPServer(s.WebhookMux())
	server.TLSConfig = s.tls
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.shutdownTimeout)
		defer cancel()
		if err := server.Shutdown(ending); err != nil {
			log.FromContext(ctx).Error(errors.Join(err, server.Close()), "Some admission reviews were not answered before the end")
		}
	}()
	s.started.Store(true)
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving webhooks, %w", err)
	}
	<-ended
	return nil
}

// StartedChecker implements webhook.Server.
func (s *Server) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if !s.started.Load() {
			return errors.New("the webhook server has not been started yet")
		}
		return nil
	}
}

// newHTTPServer returns a server in which waiting reviews do not block other reviews.
func newHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 1 << 20,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamBytes, MaxReceiveBufferPerConnection: connectionBytes},
	}
}
