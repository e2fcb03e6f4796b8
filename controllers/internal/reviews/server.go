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
	// An API server sends all reviews over one HTTP/2 connection. Reviews that wait for room are not read, and must not
	// use up the flow control window of that connection. It is as large as the windows of all streams together.
	maxStreams      = 250
	streamBytes     = 64 << 10
	connectionBytes = maxStreams * streamBytes

	headerTimeout   = 32 * time.Second
	shutdownTimeout = time.Minute
)

// Server is a webhook server whose connections have flow control windows for waiting reviews. controller-runtime's
// server, which provides the registration and its metrics, has no setting for them.
type Server struct {
	webhook.Server
	address string
	tls     *tls.Config
	started atomic.Bool
}

// NewServer returns a server that listens on the address. config must contain the certificate.
func NewServer(address string, config *tls.Config) *Server {
	return &Server{Server: webhook.NewServer(webhook.Options{WebhookMux: http.NewServeMux()}), address: address, tls: config}
}

// Start serves until the context is done, and completes the reviews in progress.
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
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := server.Shutdown(ending); err != nil {
			log.FromContext(ctx).Error(err, "Some admission reviews were not answered before the end")
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

// newHTTPServer returns a server in which waiting reviews do not block others.
func newHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: 90 * time.Second, MaxHeaderBytes: 1 << 20,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamBytes, MaxReceiveBufferPerConnection: connectionBytes},
	}
}
